//! The listener of `/metrics`, `/livez` and `/readyz`: one answer a connection, and nothing else of HTTP.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// The longest request that is read.
const MAX_REQUEST_BYTES: usize = 8 * 1024;
/// How long accepting rests where the system has no more sockets or memory for it.
const REST: Duration = Duration::from_millis(100);
/// Answers with all figures that are made at the same time.
const TEXTS_AT_A_TIME: usize = 2;

/// What is served.
pub struct Pages {
    /// Makes all figures; it may take long.
    pub figures: Box<dyn Fn() -> String + Send + Sync>,
    /// Whether clients can be served, and if not, why not.
    pub ready: Box<dyn Fn() -> Result<(), &'static str> + Send + Sync>,
}

/// What holds for those who ask.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at a time. One more closes the one that has been silent for the longest time,
    /// and is itself closed where all of them have asked and are answered.
    pub connections: usize,
    /// How long a connection may take.
    pub time: Duration,
}

/// A connection that has not ended.
struct Open {
    task: AbortHandle,
    has_asked: Arc<AtomicBool>,
}

/// Answers until the task is dropped.
pub async fn serve(listener: TcpListener, pages: Arc<Pages>, limits: Limits) {
    let texts = Arc::new(Semaphore::new(TEXTS_AT_A_TIME));
    let mut open: VecDeque<Open> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            let _ = timeout(REST, std::future::pending::<()>()).await;
            continue;
        };
        if !make_room(&mut open, limits.connections) {
            continue;
        }
        let has_asked = Arc::new(AtomicBool::new(false));
        let (pages, texts, asked) =
            (Arc::clone(&pages), Arc::clone(&texts), Arc::clone(&has_asked));
        let task = tokio::spawn(async move {
            // A reader that goes away or is too slow has lost an answer, and nobody else has.
            let _ = timeout(limits.time, answer(stream, &pages, &texts, &asked)).await;
        });
        open.push_back(Open { task: task.abort_handle(), has_asked });
    }
}

/// Whether there is room for one more connection, once the longest silent one is closed for it.
fn make_room(open: &mut VecDeque<Open>, most: usize) -> bool {
    open.retain(|open| !open.task.is_finished());
    if open.len() < most {
        return true;
    }
    let silent = open.iter().position(|open| !open.has_asked.load(Ordering::Relaxed));
    let Some(silent) = silent.and_then(|at| open.remove(at)) else { return false };
    silent.task.abort();
    true
}

async fn answer(
    mut stream: TcpStream,
    pages: &Arc<Pages>,
    texts: &Semaphore,
    has_asked: &AtomicBool,
) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < MAX_REQUEST_BYTES {
        if stream.read_buf(&mut request).await? == 0 {
            break;
        }
    }
    has_asked.store(true, Ordering::Relaxed);
    let (status, body) = match path(&request) {
        Some("/metrics") => ("200 OK", figures(pages, texts).await?),
        Some("/livez") => ("200 OK", "alive\n".to_owned()),
        Some("/readyz") => match (pages.ready)() {
            Ok(()) => ("200 OK", "ready\n".to_owned()),
            Err(reason) => ("503 Service Unavailable", format!("{reason}\n")),
        },
        Some(_) => (
            "404 Not Found",
            "there are /metrics, /livez and /readyz, and nothing else\n".to_owned(),
        ),
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

/// All figures, made where no connection waits for them.
async fn figures(pages: &Arc<Pages>, texts: &Semaphore) -> std::io::Result<String> {
    let _turn = texts.acquire().await.map_err(std::io::Error::other)?;
    let pages = Arc::clone(pages);
    let made = tokio::task::spawn_blocking(move || (pages.figures)()).await;
    made.map_err(std::io::Error::other)
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

    fn pages() -> Arc<Pages> {
        Arc::new(Pages {
            figures: Box::new(|| "figures 1\n".to_owned()),
            ready: Box::new(|| Err("the engine has halted")),
        })
    }

    async fn ask_at(address: std::net::SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn ask(request: &[u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let limits = Limits { connections: 4, time: Duration::from_secs(60) };
        let server = tokio::spawn(serve(listener, pages(), limits));
        let answer = ask_at(address, request).await;
        server.abort();
        answer
    }

    #[tokio::test]
    async fn who_is_silent_is_closed_for_who_asks_and_holds_up_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let limits = Limits { connections: 4, time: Duration::from_secs(3600) };
        let server = tokio::spawn(serve(listener, pages(), limits));
        let mut silent = Vec::new();
        for _ in 0..72 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let answer = ask_at(address, b"GET /metrics HTTP/1.1\r\n\r\n").await;
        assert!(answer.ends_with("figures 1\n"), "{answer}");
        // The first is closed: it was silent for the longest time.
        assert_eq!(silent[0].read(&mut [0]).await.unwrap_or(0), 0);
        server.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_is_closed_when_its_time_is_over() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let limits = Limits { connections: 4, time: Duration::from_secs(10) };
        let server = tokio::spawn(serve(listener, pages(), limits));
        let mut silent = TcpStream::connect(address).await.unwrap();
        silent.write_all(b"GET /met").await.unwrap();
        assert_eq!(silent.read(&mut [0]).await.unwrap_or(0), 0);
        server.abort();
    }

    #[tokio::test]
    async fn it_is_alive_while_it_is_not_ready() {
        assert!(ask(b"GET /livez HTTP/1.1\r\n\r\n").await.ends_with("alive\n"));
        let answer = ask(b"GET /readyz HTTP/1.1\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("halted\n"), "{answer}");
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
