//! One run: the replay, then gets alone.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;
use std::{fmt, fs, io, thread};

use rustix::time::{ClockId, clock_gettime};

use crate::caches::Candidate;
use crate::requests::Request;

/// Values are pieces of one buffer, whose bytes repeat after so many. So the ends of a value tell whether it is the
/// key's.
const PERIOD: u64 = 251;

/// What came of a run.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    hits: u64,
    requests: u64,
    /// By how much resident memory grew from before the cache was made to the end of the replay.
    resident_bytes: u64,
    replay: Cost,
    /// With one thread and with two.
    gets: Vec<Cost>,
}

/// Nanoseconds an operation.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Processor time of its thread.
    cpu_nanos: f64,
    /// By the clock, of its thread.
    wall_nanos: f64,
}

/// Replays requests through a cache, a get and for each miss an insert. Then measures gets alone: so many of each
/// thread.
pub(crate) fn measure<C: Candidate>(
    make: impl FnOnce() -> io::Result<C>,
    requests: &[Request],
    gets: u64,
) -> io::Result<Figures> {
    let longest = requests.iter().map(|request| u64::from(request.value_bytes)).max().unwrap_or(0);
    let source: Vec<u8> = (0..longest + PERIOD).map(|at| (at % PERIOD) as u8).collect();
    let before_bytes = resident_bytes()?;
    let cache = make()?;
    let mut hits = 0;
    let replay = cost(requests.len() as u64, || {
        for request in requests {
            if cache.get(request.key, |value| check(request.key, value)) {
                hits += 1;
            } else {
                cache.insert(request.key, value_of(request, &source));
            }
        }
    });
    let mut figures = Figures {
        hits,
        requests: requests.len() as u64,
        resident_bytes: resident_bytes()?.saturating_sub(before_bytes),
        replay,
        gets: Vec::new(),
    };
    if gets > 0 {
        figures.gets = [1, 2].map(|threads| measure_gets(&cache, requests, gets, threads)).to_vec();
    }
    Ok(figures)
}

/// Asks for the last keys of the requests; each thread begins elsewhere among them. The mean of the threads.
fn measure_gets(cache: &impl Candidate, requests: &[Request], gets: u64, threads: usize) -> Cost {
    let recent = &requests[requests.len() - requests.len().min(gets as usize)..];
    let start = Barrier::new(threads);
    let costs: Vec<Cost> = thread::scope(|scope| {
        let run = |thread: usize| {
            let start = &start;
            scope.spawn(move || {
                let (later, earlier) = (&recent[thread * recent.len() / threads..], recent);
                let asked = later.iter().chain(earlier.iter().cycle()).take(gets as usize);
                start.wait();
                cost(gets, || {
                    for request in asked {
                        black_box(cache.get(request.key, |value| check(request.key, value)));
                    }
                })
            })
        };
        let running: Vec<_> = (0..threads).map(run).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    assert_eq!(costs.len(), threads, "a thread panicked");
    let mean = |nanos: fn(&Cost) -> f64| costs.iter().map(nanos).sum::<f64>() / threads as f64;
    Cost { cpu_nanos: mean(|cost| cost.cpu_nanos), wall_nanos: mean(|cost| cost.wall_nanos) }
}

fn value_of<'s>(request: &Request, source: &'s [u8]) -> &'s [u8] {
    &source[(request.key % PERIOD) as usize..][..request.value_bytes as usize]
}

/// Reads both ends of a value. Panics if they are another key's.
#[inline]
fn check(key: u64, value: &[u8]) {
    if let (Some(first), Some(last)) = (value.first(), value.last()) {
        let start = key % PERIOD;
        let expected = [start, (start + value.len() as u64 - 1) % PERIOD];
        assert!([*first, *last].map(u64::from) == expected, "a value of another key");
    }
}

fn cost(operations: u64, work: impl FnOnce()) -> Cost {
    let (start, cpu_start) = (Instant::now(), cpu_nanos());
    work();
    let each = |nanos: u64| nanos as f64 / operations as f64;
    Cost { cpu_nanos: each(cpu_nanos() - cpu_start), wall_nanos: each(start.elapsed().as_nanos() as u64) }
}

/// Processor time of this thread.
fn cpu_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn resident_bytes() -> io::Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| io::Error::other("/proc/self/statm has no second number"))?;
    Ok(pages * rustix::param::page_size() as u64)
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "hits {}\nrequests {}", self.hits, self.requests)?;
        writeln!(f, "resident_bytes {}", self.resident_bytes)?;
        writeln!(f, "replay_cpu_nanos {:.1}", self.replay.cpu_nanos)?;
        for (cost, threads) in self.gets.iter().zip(1..) {
            writeln!(f, "get_{threads}_cpu_nanos {:.1}", cost.cpu_nanos)?;
            writeln!(f, "get_{threads}_wall_nanos {:.1}", cost.wall_nanos)?;
        }
        Ok(())
    }
}
