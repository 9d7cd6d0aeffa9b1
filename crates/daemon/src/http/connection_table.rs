//! The table of connections. It knows which are idle, and decides which is closed to make room for a new one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::task::Waker;
use std::time::Instant;

/// Limits on the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Most connections in all.
    pub connections: usize,
    /// Most connections from one other host. The daemon's own host has no such limit, because a proxy there
    /// may stand for all clients.
    pub per_host: usize,
}

/// One connection.
#[derive(Debug)]
pub(super) struct ConnectionEntry {
    host: IpAddr,
    /// Complete requests that are not answered yet.
    pub busy: u32,
    /// When the last request changed its stage.
    pub since: Instant,
    /// Wakes the connection's task, which waits for data.
    pub waker: Option<Waker>,
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct ConnectionTable {
    /// Connections by number.
    pub connections: BTreeMap<u64, ConnectionEntry>,
    hosts: BTreeMap<IpAddr, HostConnections>,
    /// The addresses with idle connections. The last one loses a connection first.
    ranking: BTreeSet<IdleRank>,
    last_id: u64,
}

/// The number of an address's idle connections, since when the oldest is idle, and the address. An address
/// with more of them ranks later. With equal numbers, the one whose oldest is older ranks later.
type IdleRank = (usize, Reverse<Instant>, IpAddr);

/// The connections of one address.
#[derive(Debug, Default)]
struct HostConnections {
    /// Number of all its connections.
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
    /// Adds a connection. Where a limit is reached, an idle connection is closed for it. Returns its number,
    /// or `None` where no connection is idle.
    pub fn admit_connection(&mut self, host: IpAddr, limits: ConnectionLimits, now: Instant) -> Option<u64> {
        let of_host = self.hosts.get(&host);
        if !host.is_loopback() && of_host.is_some_and(|of_host| of_host.all >= limits.per_host) {
            let (_, oldest) = of_host?.idle.first().copied()?;
            self.evict_connection(oldest);
        }
        if self.connections.len() >= limits.connections {
            let (_, _, host) = self.ranking.last()?;
            let (_, oldest) = self.hosts.get(host)?.idle.first().copied()?;
            self.evict_connection(oldest);
        }
        self.last_id += 1;
        let id = self.last_id;
        self.connections.insert(id, ConnectionEntry { host, busy: 0, since: now, waker: None });
        self.hosts.entry(host).or_default().all += 1;
        self.update_idle(host, |idle| {
            idle.insert((now, id));
        });
        Some(id)
    }

    /// Changes the idle connections of an address, and its rank.
    fn update_idle(&mut self, host: IpAddr, change: impl FnOnce(&mut BTreeSet<(Instant, u64)>)) {
        let Some(of_host) = self.hosts.get_mut(&host) else { return };
        if let Some(rank) = of_host.idle_rank(host) {
            self.ranking.remove(&rank);
        }
        change(&mut of_host.idle);
        self.ranking.extend(of_host.idle_rank(host));
    }

    /// Removes a connection at once, and wakes its task to close it.
    fn evict_connection(&mut self, id: u64) {
        if let Some(waker) = self.remove_connection(id).and_then(|connection| connection.waker) {
            waker.wake();
        }
    }

    pub fn remove_connection(&mut self, id: u64) -> Option<ConnectionEntry> {
        let connection = self.connections.remove(&id)?;
        self.update_idle(connection.host, |idle| {
            idle.remove(&(connection.since, id));
        });
        if let Some(of_host) = self.hosts.get_mut(&connection.host) {
            of_host.all -= 1;
            if of_host.all == 0 {
                self.hosts.remove(&connection.host);
            }
        }
        Some(connection)
    }

    /// Records that a request of a connection has reached this stage.
    pub fn set_stage(&mut self, id: u64, stage: RequestStage, now: Instant) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let old_entry = (connection.since, id);
        connection.busy = match stage {
            RequestStage::Begins => connection.busy,
            RequestStage::Received => connection.busy + 1,
            RequestStage::Answered => connection.busy.saturating_sub(1),
        };
        connection.since = now;
        let host = connection.host;
        let is_idle = connection.busy == 0;
        self.update_idle(host, |idle| {
            idle.remove(&old_entry);
            if is_idle {
                idle.insert((now, id));
            }
        });
    }
}

/// A stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestStage {
    /// Its head has arrived, or it was refused before it was complete.
    Begins,
    /// It has arrived completely.
    Received,
    /// It had arrived completely and is answered.
    Answered,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits { connections: 4, per_host: 2 };
    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn host(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    #[test]
    fn a_new_connection_replaces_the_one_that_was_idle_longest() {
        let mut table = ConnectionTable::default();
        let now = Instant::now();
        let ids: Vec<u64> = (0..4)
            .filter_map(|secs| table.admit_connection(HERE, LIMITS, now + Duration::from_secs(secs)))
            .collect();
        assert_eq!(ids.len(), 4, "the daemon's own host may have all");
        table.set_stage(ids[0], RequestStage::Received, now + Duration::from_secs(5));
        let fifth = table.admit_connection(HERE, LIMITS, now + Duration::from_secs(6)).unwrap();
        assert_eq!(table.connections.keys().copied().collect::<Vec<_>>(), [ids[0], ids[2], ids[3], fifth]);
        // The connection of the last answered request was idle for the shortest time.
        table.set_stage(ids[0], RequestStage::Answered, now + Duration::from_secs(7));
        table.set_stage(ids[2], RequestStage::Received, now + Duration::from_secs(7));
        table.admit_connection(HERE, LIMITS, now + Duration::from_secs(8)).unwrap();
        assert!(!table.connections.contains_key(&ids[3]) && table.connections.contains_key(&ids[0]));
        assert_eq!(table.connections.len(), LIMITS.connections);
    }

    #[test]
    fn a_busy_connection_is_never_closed() {
        let mut table = ConnectionTable::default();
        let now = Instant::now();
        for n in 0..4 {
            let id = table.admit_connection(host(n), LIMITS, now).unwrap();
            table.set_stage(id, RequestStage::Received, now);
        }
        assert_eq!(table.admit_connection(host(9), LIMITS, now), None);
        assert_eq!(table.connections.len(), 4);
    }

    #[test]
    fn an_address_with_many_idle_connections_loses_one_first() {
        let mut table = ConnectionTable::default();
        let now = Instant::now();
        let limits = ConnectionLimits { connections: 4, per_host: 4 };
        let alone = table.admit_connection(host(1), limits, now).unwrap();
        let mut later = (1..10).map(|at| now + Duration::from_secs(at));
        let crowd: Vec<u64> =
            later.by_ref().take(3).map(|at| table.admit_connection(host(2), limits, at).unwrap()).collect();
        // One more of the crowd, and one of a new address. Neither replaces the single connection.
        let fourth = table.admit_connection(host(2), limits, later.next().unwrap()).unwrap();
        let other = table.admit_connection(host(3), limits, later.next().unwrap()).unwrap();
        assert_eq!(table.connections.keys().copied().collect::<Vec<_>>(), [alone, crowd[2], fourth, other]);
        // A request that has only begun does not make its connection busy. A complete one does.
        table.set_stage(crowd[2], RequestStage::Begins, later.next().unwrap());
        table.set_stage(fourth, RequestStage::Received, later.next().unwrap());
        table.admit_connection(host(4), limits, later.next().unwrap()).unwrap();
        assert!(table.connections.contains_key(&fourth), "{table:?}");
        assert!(!table.connections.contains_key(&alone), "among equals the oldest is closed: {table:?}");
    }

    #[test]
    fn one_address_has_a_limit() {
        let mut table = ConnectionTable::default();
        let now = Instant::now();
        let first = table.admit_connection(host(1), LIMITS, now).unwrap();
        let second = table.admit_connection(host(1), LIMITS, now).unwrap();
        let other = table.admit_connection(host(2), LIMITS, now).unwrap();
        let third = table.admit_connection(host(1), LIMITS, now).unwrap();
        assert_eq!(table.connections.keys().copied().collect::<Vec<_>>(), [second, other, third]);
        table.set_stage(second, RequestStage::Received, now);
        table.set_stage(third, RequestStage::Received, now);
        assert_eq!(table.admit_connection(host(1), LIMITS, now), None, "both are busy");
        for id in [first, second, other, third] {
            table.remove_connection(id);
        }
        assert!(
            table.connections.is_empty() && table.ranking.is_empty() && table.hosts.is_empty(),
            "{table:?}"
        );
    }
}
