//! SIGHUP: users, grants and certificates are read again, all or none.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use kafka_protocol::messages::{
    ApiVersionsRequest, MetadataRequest, SaslAuthenticateRequest, SaslHandshakeRequest,
};
use kafka_protocol::protocol::StrBytes;
use rustix::process::Signal;
use tidelog_broker::security::users::hash_password;

use crate::common::client::{Client, name};
use crate::process::{Folder, Process, text};

const TAKEN: &str = "were read again";

fn line(name: &str, password: &[u8]) -> String {
    format!("{name}:{}\n", hash_password(password).unwrap())
}

fn log_in(client: &mut Client, user: &str, password: &str) -> i16 {
    let plain = SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str("PLAIN"));
    assert_eq!(client.ask(1, &plain).error_code, 0);
    let token = format!("\0{user}\0{password}").into_bytes().into();
    client.ask(2, &SaslAuthenticateRequest::default().with_auth_bytes(token)).error_code
}

/// The code of a topic that is not there: 3 for who may see it, else 29.
fn code(client: &mut Client, topic: &str) -> i16 {
    use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
    let topic = MetadataRequestTopic::default().with_name(Some(name(topic)));
    let request = MetadataRequest::default().with_topics(Some(vec![topic]));
    client.ask(9, &request).topics[0].error_code
}

#[test]
fn it_is_harmless_where_there_is_nothing_to_read() {
    let folder = Folder::new();
    let mut broker = Process::start(&folder, &[]);
    let mut client = broker.client();
    for _ in 0..3 {
        broker.signal(Signal::HUP);
        broker.line(TAKEN);
        client.ask(0, &ApiVersionsRequest::default());
    }
    broker.signal(Signal::TERM);
    assert!(broker.ended().success());
}

#[test]
fn users_and_grants_are_taken_together_and_stay_where_one_is_wrong() {
    let folder = Folder::new();
    let users = folder.write("users", &line("ann", b"old"));
    let grants = folder.write("grants", "ann Describe a\n");
    let options = ["--users", text(&users), "--grants", text(&grants)];
    let mut broker = Process::start(&folder, &options);
    assert_eq!((broker.field("users"), broker.field("grants")), ("1", "1"));
    let mut ann = broker.client();
    assert_eq!(log_in(&mut ann, "ann", "old"), 0);
    assert_eq!([code(&mut ann, "a"), code(&mut ann, "b")], [3, 29]);

    // One wrong file of two: neither is taken.
    folder.write("users", &(line("ann", b"new") + &line("bob", b"b")));
    folder.write("grants", "ann Describe b\nbob Reads all\n");
    broker.signal(Signal::HUP);
    let said = broker.line("stay as they were");
    assert!(said.contains("ERROR") && said.contains(text(&grants)), "{said}");
    assert!(said.contains("line=2"), "{said}");
    assert_eq!([code(&mut ann, "a"), code(&mut ann, "b")], [3, 29]);
    assert_eq!(log_in(&mut broker.client(), "bob", "b"), 58);

    folder.write("grants", "ann Describe b\nbob Describe *\n");
    broker.signal(Signal::HUP);
    let said = broker.line(TAKEN);
    assert!(said.contains("users=2") && said.contains("grants=2"), "{said}");
    assert_eq!([code(&mut ann, "a"), code(&mut ann, "b")], [29, 3], "who is there, too");
    assert_eq!(log_in(&mut broker.client(), "ann", "old"), 58);
    assert_eq!(log_in(&mut broker.client(), "ann", "new"), 0);
    let mut bob = broker.client();
    assert_eq!((log_in(&mut bob, "bob", "b"), code(&mut bob, "a")), (0, 3));

    std::fs::remove_file(&users).unwrap();
    broker.signal(Signal::HUP);
    assert!(broker.line("stay as they were").contains(text(&users)));
    assert_eq!(log_in(&mut broker.client(), "bob", "b"), 0);
}

struct Pair {
    certificate: String,
    key: String,
    root: rustls::pki_types::CertificateDer<'static>,
}

fn pair() -> Pair {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.key_pair.serialize_pem());
    Pair { certificate, key, root: made.cert.der().clone() }
}

/// A client that trusts this certificate and no other; nothing where the broker has another.
fn tls_client(address: SocketAddr, trusted: &Pair) -> Option<Client> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.root.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    let mut session = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    while session.is_handshaking() {
        session.complete_io(&mut stream).ok()?;
    }
    Some(Client::over(Box::new(rustls::StreamOwned::new(session, stream))))
}

#[test]
fn new_connections_have_the_new_certificate_and_old_ones_go_on_under_load() {
    let folder = Folder::new();
    let (old, new) = (pair(), pair());
    let certificate = folder.write("cert.pem", &old.certificate);
    let key = folder.write("key.pem", &old.key);
    let options = ["--tls-cert", text(&certificate), "--tls-key", text(&key)];
    let mut broker = Process::start(&folder, &options);
    let ask = |client: &mut Client| client.ask(0, &ApiVersionsRequest::default()).error_code;
    let address = broker.address();
    let mut early = tls_client(address, &old).expect("the old certificate");
    assert_eq!(ask(&mut early), 0);

    // The certificate comes a moment before its key: together they are wrong.
    folder.write("cert.pem", &new.certificate);
    broker.signal(Signal::HUP);
    let said = broker.line("stay as they were");
    assert!(said.contains(text(&certificate)) && said.contains("ERROR"), "{said}");
    assert!(tls_client(address, &old).is_some() && tls_client(address, &new).is_none());

    folder.write("key.pem", &new.key);
    // Handshakes go on meanwhile: each is served with the one or with the other.
    let either =
        || (0..2).any(|_| [&new, &old].iter().any(|pair| tls_client(address, pair).is_some()));
    std::thread::scope(|scope| {
        let load: Vec<_> = (0..4).map(|_| scope.spawn(|| (0..10).all(|_| either()))).collect();
        broker.signal(Signal::HUP);
        assert!(load.into_iter().all(|one| one.join().unwrap()));
    });
    broker.line(TAKEN);
    let mut late = tls_client(address, &new).expect("the new certificate");
    assert_eq!((ask(&mut late), ask(&mut early)), (0, 0));
    assert!(tls_client(address, &old).is_none());
}
