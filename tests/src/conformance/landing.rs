//! Streams whose bytes land as they come, see [`RecvStream::land`].

use std::{
    pin::pin,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use thalweg_transport::{
    Connection, ErrorCode, Landed, Landing, RecvStream, SendStream, SharedLanding, StreamError,
};

use super::{
    backend::{Backend, Pair},
    support::{
        assert_closed_locally, assert_same, connection_end, pattern, read_to_end, still_pending,
        within, write, write_and_finish,
    },
};

/// Keeps what lands, and pauses when it has had enough.
#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    enough: Option<usize>,
}

impl Landing for Kept {
    fn land(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn hand_on(&mut self) -> bool {
        self.enough.is_none_or(|enough| self.bytes.len() < enough)
    }
}

fn keep(enough: Option<usize>) -> (Arc<Mutex<Kept>>, SharedLanding) {
    let bytes = Vec::new();
    let kept = Arc::new(Mutex::new(Kept { bytes, enough }));
    (kept.clone(), kept)
}

fn landed(kept: &Mutex<Kept>) -> usize {
    kept.lock().expect("no landing panics").bytes.len()
}

/// Every byte lands, in order, what came before included; then the end, as often as it is asked for.
pub async fn everything_lands_in_order_and_then_the_end<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let data = pattern(3_000_000);
    let (kept, landing) = keep(None);
    write::<B>(&mut send, data.slice(..1_000)).await;
    let sending = async {
        write_and_finish::<B>(&mut send, data.slice(1_000..)).await;
        within("stopped", send.stopped()).await
    };
    let (end, stopped) = tokio::join!(within("the end", recv.land(&landing)), sending);
    assert_eq!(end.expect("a complete stream"), Landed::End);
    assert_eq!(stopped.expect("a living connection"), None);
    assert_same(&kept.lock().expect("no landing panics").bytes, &data);
    let again = within("the end", recv.land(&landing)).await;
    assert_eq!(again.expect("a complete stream"), Landed::End);
}

/// What is read first does not land, and what lands is not read again.
pub async fn reading_and_landing_share_a_stream<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let (kept, landing) = keep(Some(100_000));
    let data = pattern(400_000);
    let sending = write_and_finish::<B>(&mut send, data.clone());
    let receiving = async {
        let first = super::support::read::<B>(&mut recv, 10)
            .await
            .expect("data");
        let paused = within("a pause", recv.land(&landing)).await;
        assert_eq!(paused.expect("a stream"), Landed::Paused);
        let landed = kept.lock().expect("no landing panics").bytes.clone();
        [first, landed.into(), read_to_end::<B>(&mut recv).await].concat()
    };
    let ((), found) = tokio::join!(sending, receiving);
    assert_same(&found, &data);
}

/// A landing that wants no more gets no more, and nothing is lost until it goes on.
pub async fn a_paused_landing_waits_and_loses_nothing<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let data = pattern(2_000_000);
    let (kept, landing) = keep(Some(1));
    let sending = write_and_finish::<B>(&mut send, data.clone());
    let receiving = async {
        let mut pauses = 0;
        loop {
            match within("landing", recv.land(&landing))
                .await
                .expect("a stream")
            {
                Landed::End => return pauses,
                Landed::Paused => pauses += 1,
            }
            let before = landed(&kept);
            if pauses < 3 {
                tokio::time::sleep(super::QUIET).await;
            }
            assert_eq!(landed(&kept), before, "nothing lands in a pause");
            kept.lock().expect("no landing panics").enough = Some(before + 100_000);
        }
    };
    let ((), pauses) = tokio::join!(sending, receiving);
    assert!(pauses > 0, "{pauses} pauses");
    assert_same(&kept.lock().expect("no landing panics").bytes, &data);
}

/// After a dropped `land` nothing lands, and what has not landed can be read.
pub async fn a_dropped_land_leaves_the_rest_to_read<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let data = pattern(200_000);
    let (kept, landing) = keep(None);
    {
        let mut landing = pin!(recv.land(&landing));
        write::<B>(&mut send, data.slice(..50_000)).await;
        still_pending("the end of an open stream", &mut landing).await;
    }
    let before = landed(&kept);
    assert_eq!(before, 50_000, "all that had come has landed");
    write_and_finish::<B>(&mut send, data.slice(50_000..)).await;
    let rest = read_to_end::<B>(&mut recv).await;
    assert_eq!(landed(&kept), before, "nothing lands after the drop");
    assert_same(&rest, &data[50_000..]);
}

/// Who waits for bytes to land hears of a reset, with its code.
pub async fn a_reset_ends_a_landing<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let (_kept, landing) = keep(None);
    let mut landing = pin!(recv.land(&landing));
    still_pending("the end of an open stream", &mut landing).await;
    send.reset(ErrorCode::CANCELLED);
    match within("the reset", landing).await {
        Err(StreamError::Reset { code }) => assert_eq!(code, ErrorCode::CANCELLED),
        other => panic!("expected a reset, found {other:?}"),
    }
}

/// Who waits for bytes to land hears of the connection's end.
pub async fn a_close_ends_a_landing<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let (kept, landing) = keep(None);
    let mut landing = pin!(recv.land(&landing));
    write::<B>(&mut send, Bytes::from_static(b"before")).await;
    still_pending("the end of an open stream", &mut landing).await;
    pair.accepted.close(ErrorCode(77), "over");
    let error = within("the close", landing).await.expect_err("a close");
    assert_closed_locally(&connection_end(error), ErrorCode(77), "over");
    assert_eq!(landed(&kept), 6);
}
