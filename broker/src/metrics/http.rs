//! The listener of `/metrics`: one answer a connection, and nothing else of HTTP.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Readers of figures at a time.
const READERS: usize = 8;
/// The longest request that is read.
const MAX_REQUEST_BYTES: usize = 8 * 1024;
/// How long accepting rests where the system has no more sockets or memory for it.
const REST: Duration = Duration::from_millis(100);
/// How long a reader may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers until the task is dropped; `text` makes the figures.
pub async fn serve(listener: TcpListener, text: Arc<dyn Fn() -> String + Send + Sync>) {
    let readers = Arc::new(Semaphore::new(READERS));
    loop {
        let turn = Arc::clone(&readers).acquire_owned().await;
        let Ok((stream, _)) = listener.accept().await else {
            let _ = timeout(REST, std::future::pending::<()>()).await;
            continue;
        };
        let text = Arc::clone(&text);
        tokio::spawn(async move {
            let _turn = turn;
            // A reader that goes away or is too slow has lost an answer, and nobody else has.
            let _ = timeout(PATIENCE, answer(stream, &*text)).await;
        });
    }
}

async fn answer(
    mut stream: TcpStream,
    text: &(dyn Fn() -> String + Send + Sync),
) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < MAX_REQUEST_BYTES {
        if stream.read_buf(&mut request).await? == 0 {
            break;
        }
    }
    let (status, body) = match path(&request) {
        Some("/metrics") => ("200 OK", text()),
        Some(_) => ("404 Not Found", "the figures are at /metrics\n".to_owned()),
        None => ("400 Bad Request", "a request is `GET /metrics HTTP/1.1`\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

/// The path that a GET asks for, without what is behind a question mark.
fn path(request: &[u8]) -> Option<&str> {
    let line = request.split(|&byte| byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let whole = method == "GET" && version.starts_with("HTTP/1.") && words.next().is_none();
    whole.then(|| target.split('?').next().unwrap_or(target))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(request: &[u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(listener, Arc::new(|| "figures 1\n".to_owned())));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        server.abort();
        answer
    }

    #[tokio::test]
    async fn the_figures_come_for_their_path_and_for_no_other() {
        let answer = ask(b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("Content-Length: 10\r\nConnection: close\r\n\r\nfigures 1\n"));
        assert!(ask(b"GET / HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 404 "));
        for wrong in [&b"POST /metrics HTTP/1.1\r\n\r\n"[..], b"\0\0\0\x0e\0\x03", b"", b"GET\r\n"]
        {
            assert!(ask(wrong).await.starts_with("HTTP/1.1 400 "), "{wrong:?}");
        }
    }
}
