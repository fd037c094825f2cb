//! An exporter for Prometheus: every figure of the engine in its text format, served over HTTP.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use tidelog::{Durability, Engine, EngineConfig, FigureValue, Metrics, Record, TopicConfig};

fn text(metrics: &Metrics) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    for figure in metrics.figures() {
        let (name, kind) = (figure.name, figure.kind.name());
        writeln!(out, "# HELP my_{name} {}\n# TYPE my_{name} {kind}", figure.help)?;
        match figure.value {
            FigureValue::Number(number) => writeln!(out, "my_{name} {number}")?,
            FigureValue::Histogram(values) => {
                for (bound, count) in values.cumulative_seconds() {
                    writeln!(out, "my_{name}_bucket{{le=\"{bound}\"}} {count}")?;
                }
                writeln!(out, "my_{name}_bucket{{le=\"+Inf\"}} {}", values.count())?;
                writeln!(out, "my_{name}_sum {}", values.sum_seconds())?;
                writeln!(out, "my_{name}_count {}", values.count())?;
            }
            _ => {}
        }
    }
    Ok(out)
}

/// Answers one request, whatever it asks for.
fn answer(engine: &Engine, mut client: TcpStream) -> Result<(), Box<dyn Error>> {
    let body = text(&engine.metrics())?;
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n";
    write!(client, "{head}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())?;
    Ok(())
}

fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let engine = Engine::open(directory, EngineConfig::default())?;
    let topic = engine.open_or_create_topic("events", TopicConfig::new(1))?;
    let mut append = engine.append_transaction();
    append.records(&topic.partition(0)?, [Record::keyless("v")])?;
    append.commit(Durability::Sync)?;

    let listener = TcpListener::bind("127.0.0.1:0")?;
    // A service would go on for ever here; one request by ourselves shows that it answers.
    let mut asking = TcpStream::connect(listener.local_addr()?)?;
    answer(&engine, listener.accept()?.0)?;
    let mut answered = String::new();
    asking.read_to_string(&mut answered)?;
    assert!(answered.contains("my_appended_records_total 1\n"), "{answered}");
    println!("{} lines of figures", answered.lines().count());
    engine.close()?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("tidelog-figures-{}", std::process::id()));
    run(&directory)?;
    run(&directory)?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
