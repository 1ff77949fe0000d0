//! What a server exports to Prometheus.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use larder_conformance::Result;

/// A sample: name, sorted labels as `name="value"`, value.
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: Vec<String>,
    pub(crate) value: f64,
}

/// `/metrics`, once.
pub(crate) fn get(address: SocketAddr) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    // HTTP/1.0, so that the answer comes in one piece.
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    let (head, body) = response.split_once("\r\n\r\n").ok_or("no answer to GET /metrics")?;
    if head.contains(" 200 ") { Ok(body.to_owned()) } else { Err(head.to_owned().into()) }
}

/// The samples of the text format. No label that servers export has a comma in its value.
pub(crate) fn samples(text: &str) -> Result<Vec<Sample>> {
    text.lines().filter(|line| !line.starts_with('#')).map(sample).collect()
}

fn sample(line: &str) -> Result<Sample> {
    let (series, value) = line.rsplit_once(' ').ok_or_else(|| format!("{line:?} has no value"))?;
    let (name, labels) = series.trim_end_matches('}').split_once('{').unwrap_or((series, ""));
    let mut labels: Vec<String> = labels.split(',').map(str::to_owned).collect();
    labels.sort_unstable();
    let value = value.parse().map_err(|_| format!("{line:?} has no number"))?;
    Ok(Sample { name: name.to_owned(), labels, value })
}

const TIMEOUT: Duration = Duration::from_secs(60);
