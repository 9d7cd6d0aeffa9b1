//! The book of connections: who is idle, and who makes room for a newcomer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::task::Waker;
use std::time::Instant;

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// In all.
    pub connections: usize,
    /// From one other machine. Ours may have them all: a proxy there speaks for everybody.
    pub a_host: usize,
}

/// What is known of one connection.
#[derive(Debug)]
pub(super) struct ConnectionEntry {
    host: IpAddr,
    /// Requests under way.
    pub busy: u32,
    pub since: Instant,
    /// Of its task, which waits for it to say something.
    pub waker: Option<Waker>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct ConnectionTable {
    /// By number.
    pub guests: BTreeMap<u64, ConnectionEntry>,
    hosts: BTreeMap<IpAddr, HostConnections>,
    /// The addresses of which any are idle; whoever makes room first is of the last.
    crowds: BTreeSet<IdleRank>,
    next: u64,
}

/// How many of an address are idle, since when the oldest is, and the address: more come later, and of as
/// many those whose oldest is older.
type IdleRank = (usize, Reverse<Instant>, IpAddr);

/// The guests of one address.
#[derive(Debug, Default)]
struct HostConnections {
    all: usize,
    /// The idle ones, the oldest first.
    idle: BTreeSet<(Instant, u64)>,
}

impl HostConnections {
    fn idle_rank(&self, host: IpAddr) -> Option<IdleRank> {
        let (oldest, _) = self.idle.first()?;
        Some((self.idle.len(), Reverse(*oldest), host))
    }
}

impl ConnectionTable {
    /// Takes in a connection, if there is room or somebody idle to make some.
    pub fn admit_connection(&mut self, host: IpAddr, room: ConnectionLimits, now: Instant) -> Option<u64> {
        let of_host = self.hosts.get(&host);
        if !host.is_loopback() && of_host.is_some_and(|of| of.all >= room.a_host) {
            let (_, oldest) = of_host?.idle.first().copied()?;
            self.evict_connection(oldest);
        }
        if self.guests.len() >= room.connections {
            let (_, _, host) = self.crowds.last()?;
            let (_, oldest) = self.hosts.get(host)?.idle.first().copied()?;
            self.evict_connection(oldest);
        }
        self.next += 1;
        let guest = ConnectionEntry { host, busy: 0, since: now, waker: None };
        self.guests.insert(self.next, guest);
        self.hosts.entry(host).or_default().all += 1;
        let id = self.next;
        self.update_idle(host, |idle| idle.insert((now, id)));
        Some(id)
    }

    /// Changes who is idle of an address.
    fn update_idle(&mut self, host: IpAddr, change: impl FnOnce(&mut BTreeSet<(Instant, u64)>) -> bool) {
        let Some(of_host) = self.hosts.get_mut(&host) else { return };
        of_host.idle_rank(host).map(|crowd| self.crowds.remove(&crowd));
        change(&mut of_host.idle);
        self.crowds.extend(of_host.idle_rank(host));
    }

    /// Its place is free at once; its task hears of it soon.
    fn evict_connection(&mut self, id: u64) {
        if let Some(waker) = self.remove_connection(id).and_then(|guest| guest.waker) {
            waker.wake();
        }
    }

    pub fn remove_connection(&mut self, id: u64) -> Option<ConnectionEntry> {
        let guest = self.guests.remove(&id)?;
        self.update_idle(guest.host, |idle| idle.remove(&(guest.since, id)));
        if let Some(of_host) = self.hosts.get_mut(&guest.host) {
            of_host.all -= 1;
            if of_host.all == 0 {
                self.hosts.remove(&guest.host);
            }
        }
        Some(guest)
    }

    /// A request has come whole, or only begins or ends to be one: from now on the guest is so busy.
    pub fn set_stage(&mut self, id: u64, turn: RequestStage, now: Instant) {
        let Some(guest) = self.guests.get_mut(&id) else { return };
        let was = (guest.since, id);
        guest.busy = match turn {
            RequestStage::Begins => guest.busy,
            RequestStage::Came => guest.busy + 1,
            RequestStage::Answered => guest.busy.saturating_sub(1),
        };
        guest.since = now;
        let host = guest.host;
        let is_idle = guest.busy == 0;
        self.update_idle(host, |idle| {
            idle.remove(&was);
            is_idle && idle.insert((now, id))
        });
    }
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestStage {
    /// Its head is here, or it was refused before it came whole.
    Begins,
    /// It came whole.
    Came,
    /// One that came whole is answered.
    Answered,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ROOM: ConnectionLimits = ConnectionLimits { connections: 4, a_host: 2 };
    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn host(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    #[test]
    fn newcomers_take_the_place_of_who_was_idle_longest() {
        let mut book = ConnectionTable::default();
        let now = Instant::now();
        let mut admit = |at: u64| book.admit_connection(HERE, ROOM, now + Duration::from_secs(at));
        let ids: Vec<u64> = (0..4).filter_map(&mut admit).collect();
        assert_eq!(ids.len(), 4, "our own host may have all");
        book.set_stage(ids[0], RequestStage::Came, now + Duration::from_secs(5));
        let fifth = book.admit_connection(HERE, ROOM, now + Duration::from_secs(6)).unwrap();
        assert_eq!(book.guests.keys().copied().collect::<Vec<_>>(), [ids[0], ids[2], ids[3], fifth]);
        // A request that is answered leaves its connection the youngest.
        book.set_stage(ids[0], RequestStage::Answered, now + Duration::from_secs(7));
        book.set_stage(ids[2], RequestStage::Came, now + Duration::from_secs(7));
        book.admit_connection(HERE, ROOM, now + Duration::from_secs(8)).unwrap();
        assert!(!book.guests.contains_key(&ids[3]) && book.guests.contains_key(&ids[0]));
        assert_eq!(book.guests.len(), ROOM.connections);
    }

    #[test]
    fn who_is_busy_is_never_sent_away() {
        let mut book = ConnectionTable::default();
        let now = Instant::now();
        for n in 0..4 {
            let id = book.admit_connection(host(n), ROOM, now).unwrap();
            book.set_stage(id, RequestStage::Came, now);
        }
        assert_eq!(book.admit_connection(host(9), ROOM, now), None);
        assert_eq!(book.guests.len(), 4);
    }

    #[test]
    fn a_crowd_makes_room_before_those_who_came_alone() {
        let mut book = ConnectionTable::default();
        let now = Instant::now();
        let room = ConnectionLimits { connections: 4, a_host: 4 };
        let alone = book.admit_connection(host(1), room, now).unwrap();
        let mut later = (1..10).map(|at| now + Duration::from_secs(at));
        let crowd: Vec<u64> =
            later.by_ref().take(3).map(|at| book.admit_connection(host(2), room, at).unwrap()).collect();
        // One more of the crowd, and one who comes alone: neither costs those who did their place.
        let fourth = book.admit_connection(host(2), room, later.next().unwrap()).unwrap();
        let other = book.admit_connection(host(3), room, later.next().unwrap()).unwrap();
        assert_eq!(book.guests.keys().copied().collect::<Vec<_>>(), [alone, crowd[2], fourth, other]);
        // A request that has begun and does not come makes its guest no busier, one that came does.
        book.set_stage(crowd[2], RequestStage::Begins, later.next().unwrap());
        book.set_stage(fourth, RequestStage::Came, later.next().unwrap());
        book.admit_connection(host(4), room, later.next().unwrap()).unwrap();
        assert!(book.guests.contains_key(&fourth), "{book:?}");
        assert!(!book.guests.contains_key(&alone), "of crowds of one the oldest goes: {book:?}");
    }

    #[test]
    fn one_host_has_its_share() {
        let mut book = ConnectionTable::default();
        let now = Instant::now();
        let first = book.admit_connection(host(1), ROOM, now).unwrap();
        let second = book.admit_connection(host(1), ROOM, now).unwrap();
        let other = book.admit_connection(host(2), ROOM, now).unwrap();
        let third = book.admit_connection(host(1), ROOM, now).unwrap();
        assert_eq!(book.guests.keys().copied().collect::<Vec<_>>(), [second, other, third]);
        book.set_stage(second, RequestStage::Came, now);
        book.set_stage(third, RequestStage::Came, now);
        assert_eq!(book.admit_connection(host(1), ROOM, now), None, "and no more");
        for id in [first, second, other, third] {
            book.remove_connection(id);
        }
        assert!(book.guests.is_empty() && book.crowds.is_empty() && book.hosts.is_empty(), "{book:?}");
    }
}
