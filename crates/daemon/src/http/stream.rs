//! The byte stream of a connection, plain or TLS.
//!
//! The TLS handshake happens at the first read or write. So a client that is slow in the handshake counts as
//! idle, and delays no other connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use crate::tls::TlsFiles;

/// The stream of one connection.
pub(super) enum Stream {
    /// Plain HTTP.
    Plain(TcpStream),
    /// TLS during the handshake.
    Handshake(Box<Accept<TcpStream>>),
    /// TLS after the handshake.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// A connection that was just accepted.
    pub fn new(stream: TcpStream, tls: Option<&TlsFiles>) -> Stream {
        match tls {
            None => Stream::Plain(stream),
            Some(tls) => Stream::Handshake(Box::new(TlsAcceptor::from(tls.server_config()).accept(stream))),
        }
    }

    /// Completes the TLS handshake, if there is one to complete.
    fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Stream::Handshake(accept) = self {
            let stream = ready!(Pin::new(accept.as_mut()).poll(context))?;
            *self = Stream::Tls(Box::new(stream));
        }
        Poll::Ready(Ok(()))
    }
}

/// Calls a poll function on the inner stream, after the handshake.
macro_rules! poll_inner {
    ($this:ident, $context:ident, $stream:ident => $call:expr) => {{
        let this = $this.get_mut();
        ready!(this.poll_handshake($context))?;
        match this {
            Stream::Plain($stream) => {
                let $stream = Pin::new($stream);
                $call
            }
            Stream::Tls($stream) => {
                let $stream = Pin::new($stream.as_mut());
                $call
            }
            Stream::Handshake(_) => Poll::Pending,
        }
    }};
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        poll_inner!(self, context, stream => stream.poll_read(context, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        poll_inner!(self, context, stream => stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll_inner!(self, context, stream => stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Without a handshake there is no TLS session to close.
        if matches!(*self, Stream::Handshake(_)) {
            return Poll::Ready(Ok(()));
        }
        poll_inner!(self, context, stream => stream.poll_shutdown(context))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        poll_inner!(self, context, stream => stream.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Handshake(_) => false,
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
