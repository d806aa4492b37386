//! HTTP/1.1 to a server on this machine.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// A connection that asks one thing after another.
pub struct Connection(BufReader<TcpStream>);

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Connection {
    pub fn open(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// `method` and `path`, further headers, a line each, and a body.
    pub fn ask(&mut self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Result<Answer> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nContent-Length: {}\r\n", body.len());
        if !headers.iter().any(|header| header.starts_with("Host:")) {
            head += "Host: localhost\r\n";
        }
        headers.iter().for_each(|header| head += &format!("{header}\r\n"));
        self.send(&[head.as_bytes(), b"\r\n", body].concat())?;
        self.answer()
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// Reads an answer that has a length.
    pub fn answer(&mut self) -> Result<Answer> {
        let (mut line, mut length) = (String::new(), 0);
        if self.0.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| Error::other(format!("no status line: {line:?}")))?;
        loop {
            line.clear();
            self.0.read_line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().map_err(Error::other)?;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok(Answer { status, body })
    }
}

impl Answer {
    pub fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_str(&text).unwrap_or_else(|fault| panic!("{}: {fault}: {text}", self.status))
    }
}
