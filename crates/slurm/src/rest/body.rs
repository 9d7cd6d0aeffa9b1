//! What becomes of the body of an answer: read whole, or record by record while it arrives. Bounded either
//! way.

use std::future::Future;
use std::io::{self, Read};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::Response;
use tokio::sync::mpsc;

use super::failure::{Failure, Kind, judge, transport};
use super::listing::{self, Listed};
use super::mend;
use super::record::{Record, Shared};

/// Largest answer that is read: 40,000 jobs at 5 to 9 kB each have 200 to 360 MB.
const MAX_BODY_BYTES: usize = 512 * 1024 * 1024;

/// Pieces of an answer that wait to be read. They have tens of kilobytes each.
const MAX_PIECES: usize = 32;

/// A piece of a body.
type Piece = bytes::Bytes;

/// Takes the body of an answer.
pub(super) trait Take: Sync {
    /// What it becomes.
    type Out: Send;
    /// Reads it. Called again if the request is sent again.
    fn take(&self, response: Response) -> impl Future<Output = Result<Self::Out, Failure>> + Send;
}

/// The bytes of an answer in which Slurm tells of no error.
pub(super) struct Whole;

impl Take for Whole {
    type Out = Vec<u8>;

    async fn take(&self, response: Response) -> Result<Vec<u8>, Failure> {
        let (status, mut body) = (response.status(), Vec::new());
        let mut arriving = Arriving::new(response);
        while let Some(piece) = arriving.next().await? {
            body.extend_from_slice(piece.as_ref());
        }
        let body = mend::text(body);
        judge(status, &body).map(|()| body)
    }
}

/// One list of an answer.
pub(super) struct List<M> {
    shared: Arc<Mutex<Shared>>,
    record: PhantomData<fn() -> M>,
}

impl<M> List<M> {
    /// `shared` is what this list has in common with others of the same reading.
    pub(super) fn new(shared: &Arc<Mutex<Shared>>) -> Self {
        List { shared: shared.clone(), record: PhantomData }
    }
}

impl<M: Record + Send + 'static> Take for List<M> {
    type Out = Listed<M>;

    async fn take(&self, response: Response) -> Result<Listed<M>, Failure> {
        if !response.status().is_success() {
            let status = response.status();
            Whole.take(response).await?;
            return Err(Failure::new(Kind::Permanent, format!("HTTP {}", status.as_u16())));
        }
        let (sender, receiver) = mpsc::channel(MAX_PIECES);
        let shared = self.shared.clone();
        // On a thread of its own: the jobs of a large site take half a second.
        let reading = tokio::task::spawn_blocking(move || {
            // What is shared are sets of names, which a panic cannot have left half written.
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            listing::read(Pieces { receiver, piece: None, at: 0 }, &mut shared)
        });
        let arrived = hand_over(Arriving::new(response), sender).await;
        let read = reading
            .await
            .unwrap_or_else(|e| Err(Failure::new(Kind::Transient, format!("the answer was not read: {e}"))));
        // Where the answer broke off on the way, that is what went wrong, and not that it is no whole JSON.
        arrived.and(read)
    }
}

/// Hands on what arrives, until all is there or nobody wants more. Waits where the reader is slower.
async fn hand_over(mut arriving: Arriving, sender: mpsc::Sender<Piece>) -> Result<(), Failure> {
    while let Some(piece) = arriving.next().await? {
        if sender.send(piece).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// A body on its way.
struct Arriving {
    response: Response,
    /// Bytes that may still come.
    left: usize,
}

impl Arriving {
    fn new(response: Response) -> Self {
        Arriving { response, left: MAX_BODY_BYTES }
    }

    async fn next(&mut self) -> Result<Option<Piece>, Failure> {
        let Some(piece) = self.response.chunk().await.map_err(|e| transport(&e))? else { return Ok(None) };
        let left = self.left.checked_sub(piece.len());
        self.left = left.ok_or_else(|| Failure::new(Kind::Permanent, "the answer has more than 512 MiB"))?;
        Ok(Some(piece))
    }
}

/// The pieces of a body as one stream, for a thread that may wait.
struct Pieces {
    receiver: mpsc::Receiver<Piece>,
    piece: Option<Piece>,
    /// Bytes of `piece` that have been read.
    at: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let left = self.piece.as_ref().and_then(|p| p.get(self.at..)).filter(|left| !left.is_empty());
            if let Some(left) = left {
                let count = left.len().min(buffer.len());
                buffer[..count].copy_from_slice(&left[..count]);
                self.at += count;
                return Ok(count);
            }
            (self.piece, self.at) = (self.receiver.blocking_recv(), 0);
            if self.piece.is_none() {
                return Ok(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::Node;

    fn answer(status: u16, body: &'static str) -> Response {
        let mut response = axum::http::Response::new(body);
        *response.status_mut() = axum::http::StatusCode::from_u16(status).unwrap();
        Response::from(response)
    }

    async fn nodes(status: u16, body: &'static str) -> String {
        match List::<Node>::new(&Arc::default()).take(answer(status, body)).await {
            Ok(listed) => format!("{} nodes", listed.records.len()),
            Err(f) => format!("{:?}: {}", f.kind, f.what),
        }
    }

    #[tokio::test]
    async fn a_list_is_read_and_an_error_told() {
        assert_eq!(nodes(200, r#"{"nodes": [{"name": "n1", "state": ["IDLE"]}]}"#).await, "1 nodes");
        let error = r#"{"errors": [{"error_number": 2002, "error": "Access/permission denied"}]}"#;
        assert_eq!(nodes(200, error).await, "Denied: Access/permission denied (2002)");
        assert_eq!(nodes(500, error).await, "Denied: Access/permission denied (2002) (HTTP 500)");
        assert_eq!(nodes(503, "<html>").await, "Transient: <html> (HTTP 503)");
        assert!(nodes(200, r#"{"nodes": [{"name":"#).await.starts_with("Transient: the answer is not what"));
    }

    #[tokio::test]
    async fn an_answer_is_bounded() {
        let mut arriving = Arriving { response: answer(200, "0123456789"), left: 10 };
        assert!(arriving.next().await.is_ok_and(|piece| piece.is_some()));
        let mut arriving = Arriving { response: answer(200, "0123456789"), left: 9 };
        let failure = arriving.next().await.unwrap_err();
        assert_eq!(
            (failure.kind, failure.what.as_str()),
            (Kind::Permanent, "the answer has more than 512 MiB")
        );
    }
}
