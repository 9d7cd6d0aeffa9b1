//! The bytes of a connection: plain, or TLS, which is shaken hands for with the first that is read or
//! written. So a guest who is slow at that is an idle one, and holds up nobody else.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use crate::tls::TlsFiles;

/// See the module's text.
pub(super) enum Stream {
    /// Plain HTTP.
    Plain(TcpStream),
    /// TLS, before its keys are agreed on.
    Greeting(Box<Accept<TcpStream>>),
    /// TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// A connection that was just accepted.
    pub fn new(stream: TcpStream, tls: Option<&TlsFiles>) -> Stream {
        match tls {
            None => Stream::Plain(stream),
            Some(tls) => Stream::Greeting(Box::new(TlsAcceptor::from(tls.server_config()).accept(stream))),
        }
    }

    /// Shakes hands, if that is not done.
    fn greet(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Stream::Greeting(accept) = self {
            let stream = ready!(Pin::new(accept.as_mut()).poll(context))?;
            *self = Stream::Tls(Box::new(stream));
        }
        Poll::Ready(Ok(()))
    }
}

/// What comes after the greeting, on either kind of stream.
macro_rules! on {
    ($this:ident, $context:ident, $stream:ident => $does:expr) => {{
        let this = $this.get_mut();
        ready!(this.greet($context))?;
        match this {
            Stream::Plain($stream) => {
                let $stream = Pin::new($stream);
                $does
            }
            Stream::Tls($stream) => {
                let $stream = Pin::new($stream.as_mut());
                $does
            }
            Stream::Greeting(_) => Poll::Pending,
        }
    }};
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        on!(self, context, stream => stream.poll_read(context, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        on!(self, context, stream => stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on!(self, context, stream => stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Who has not shaken hands is owed no farewell.
        if matches!(*self, Stream::Greeting(_)) {
            return Poll::Ready(Ok(()));
        }
        on!(self, context, stream => stream.poll_shutdown(context))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on!(self, context, stream => stream.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Greeting(_) => false,
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
