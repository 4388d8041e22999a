//! A disk's physics as a pure state machine: who is served when. Time comes in as a number.

/// What a disk can do. All times in seconds, sizes in bytes.
#[derive(Clone, Debug)]
pub struct Physics {
    pub size: u64,
    /// Independent servers: 1 is a spindle, 32 a flash device with 32 ways.
    pub heads: usize,
    /// Seek to the next track and over the full stroke; between them it grows with the root of the distance.
    pub seek_min: f64,
    pub seek_max: f64,
    /// One turn; a request waits for a uniform part of it. 0: does not turn.
    pub turn: f64,
    pub bytes_per_second: f64,
    /// Serves the nearest waiting request first, as a drive's own queue does.
    pub reorders: bool,
    /// Operations a second that a token bucket below the disk lets through.
    pub operations_per_second_max: Option<f64>,
    /// Added to each answer, without holding a head: a network.
    pub delay: f64,
    /// A request that follows an answer within this time finds its head as if it had been waiting:
    /// the host's own way from one answer to the next request is not the disk's.
    pub turnaround: f64,
    pub seed: u64,
}

impl Physics {
    /// A head that serves `rate` random operations a second, whatever the distance.
    pub fn constant(rate: f64, heads: usize) -> Self {
        Self {
            size: 512 << 20,
            heads,
            seek_min: 1.0 / rate,
            seek_max: 1.0 / rate,
            turn: 0.0,
            bytes_per_second: 150e6,
            reorders: false,
            operations_per_second_max: None,
            delay: 0.0,
            turnaround: 0.0008,
            seed: 1,
        }
    }

    /// A 7200 rpm spindle.
    pub fn spindle() -> Self {
        Self { seek_min: 0.002, seek_max: 0.013, turn: 60.0 / 7200.0, ..Self::constant(100.0, 1) }
    }

    /// Mean service time of one random operation of `bytes` over the whole disk, in order of arrival:
    /// the mean of the root of the distance of two uniform points is 8/15.
    pub fn service_mean(&self, bytes: u64) -> f64 {
        self.seek_min
            + (self.seek_max - self.seek_min) * 8.0 / 15.0
            + self.turn / 2.0
            + bytes as f64 / self.bytes_per_second
    }

    /// Random operations a second at `depth`, in order of arrival.
    pub fn rate(&self, bytes: u64, depth: usize) -> f64 {
        let served = depth.min(self.heads) as f64 / self.service_mean(bytes);
        self.operations_per_second_max.map_or(served, |most| served.min(most))
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: u64,
    offset: u64,
    bytes: u64,
    arrived: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Head {
    free_at: f64,
    position: u64,
}

/// A request that is being served and when it is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    pub id: u64,
    pub done_at: f64,
}

/// Queue and heads of one disk.
#[derive(Debug)]
pub struct Disk {
    physics: Physics,
    heads: Vec<Head>,
    waiting: Vec<Waiting>,
    next_token: f64,
    random: fastrand::Rng,
}

impl Disk {
    pub fn new(physics: Physics) -> Self {
        let random = fastrand::Rng::with_seed(physics.seed);
        let heads = vec![Head::default(); physics.heads];
        Self { physics, heads, waiting: Vec::new(), next_token: 0.0, random }
    }

    pub fn arrive(&mut self, id: u64, offset: u64, bytes: u64, now: f64) {
        self.waiting.push(Waiting { id, offset, bytes, arrived: now });
    }

    /// Gives free heads their next request; returns what was begun.
    ///
    /// A head that came free while a request waited begins at that moment, not at `now`: a late
    /// caller does not slow the disk.
    pub fn begin(&mut self, now: f64) -> Vec<Served> {
        let mut begun = Vec::new();
        while let Some(head) = self.free_head(now) {
            let Some(index) = self.choose(head) else { break };
            let request = self.waiting.remove(index);
            let free_at = self.heads[head].free_at;
            let idle = request.arrived - free_at;
            let mut start = if idle > self.physics.turnaround { request.arrived } else { free_at };
            if let Some(rate) = self.physics.operations_per_second_max {
                start = start.max(self.next_token);
                self.next_token = start + 1.0 / rate;
            }
            let service = self.service(head, &request);
            let free_at = start + service;
            self.heads[head] = Head { free_at, position: request.offset + request.bytes };
            begun.push(Served { id: request.id, done_at: free_at + self.physics.delay });
        }
        begun
    }

    /// When a head comes free that a request waits for; `None` when none waits.
    pub fn next_free(&self) -> Option<f64> {
        let free = self.heads.iter().map(|head| head.free_at).fold(f64::INFINITY, f64::min);
        (!self.waiting.is_empty()).then_some(free)
    }

    fn free_head(&self, now: f64) -> Option<usize> {
        let free = |index: &usize| self.heads[*index].free_at <= now;
        // The one that came free last: its next request may be on the way.
        let by_time =
            |a: &usize, b: &usize| self.heads[*a].free_at.total_cmp(&self.heads[*b].free_at);
        (0..self.heads.len()).filter(free).max_by(by_time)
    }

    fn choose(&self, head: usize) -> Option<usize> {
        let position = self.heads[head].position;
        if self.physics.reorders {
            let near = |w: &Waiting| w.offset.abs_diff(position);
            (0..self.waiting.len()).min_by_key(|index| near(&self.waiting[*index]))
        } else {
            (!self.waiting.is_empty()).then_some(0)
        }
    }

    fn service(&mut self, head: usize, request: &Waiting) -> f64 {
        let Physics { size, seek_min, seek_max, turn, bytes_per_second, .. } = self.physics;
        let transfer = request.bytes as f64 / bytes_per_second;
        let distance = request.offset.abs_diff(self.heads[head].position);
        if distance == 0 {
            return transfer;
        }
        let seek = seek_min + (seek_max - seek_min) * (distance as f64 / size as f64).sqrt();
        seek + turn * self.random.f64() + transfer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Closed loop at `depth` for `operations`; returns operations a second.
    fn closed_loop(physics: &Physics, depth: u64, operations: u64) -> f64 {
        let mut disk = Disk::new(physics.clone());
        let mut random = fastrand::Rng::with_seed(7);
        let mut offset = move || random.u64(0..physics.size / 4096) * 4096;
        let mut running: Vec<Served> = Vec::new();
        for id in 0..depth {
            disk.arrive(id, offset(), 4096, 0.0);
        }
        let mut now = 0.0;
        for id in depth..operations + depth {
            running.extend(disk.begin(now));
            let (index, done) = running
                .iter()
                .enumerate()
                .min_by(|a, b| a.1.done_at.total_cmp(&b.1.done_at))
                .map(|(i, s)| (i, *s))
                .unwrap();
            running.swap_remove(index);
            now = done.done_at;
            disk.arrive(id, offset(), 4096, now);
        }
        operations as f64 / now
    }

    #[test]
    fn the_machine_serves_what_its_physics_say() {
        for physics in
            [Physics::constant(120.0, 1), Physics::spindle(), Physics::constant(120.0, 32)]
        {
            for depth in [1, 2, 8, 32] {
                let rate = closed_loop(&physics, depth, 20_000);
                let model = physics.rate(4096, depth as usize);
                assert!((rate / model - 1.0).abs() < 0.02, "{depth}: {rate} of {model}");
            }
        }
    }

    #[test]
    fn sequential_requests_only_pay_the_transfer() {
        let mut disk = Disk::new(Physics::spindle());
        disk.arrive(0, 4096, 1 << 20, 0.0);
        let first = disk.begin(0.0)[0].done_at;
        disk.arrive(1, 4096 + (1 << 20), 1 << 20, first);
        let second = disk.begin(first)[0].done_at;
        assert!((second - first - (1 << 20) as f64 / 150e6).abs() < 1e-9);
    }

    #[test]
    fn reordering_is_faster_than_order_of_arrival() {
        let plain = Physics { turn: 0.0, seek_min: 0.0, ..Physics::spindle() };
        let clever = Physics { reorders: true, ..plain.clone() };
        assert!(closed_loop(&clever, 32, 4000) > 1.5 * closed_loop(&plain, 32, 4000));
    }

    #[test]
    fn a_token_bucket_is_exact() {
        let physics =
            Physics { operations_per_second_max: Some(300.0), ..Physics::constant(1000.0, 32) };
        let rate = closed_loop(&physics, 32, 6000);
        assert!((rate / 300.0 - 1.0).abs() < 0.01, "{rate}");
    }
}
