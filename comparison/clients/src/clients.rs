//! The clients, each used as its documentation shows.

mod async_memcached;
mod larder;
mod memcache;

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use larder_client::Protocol;

use crate::load::{Figures, Load, Operation, Watch};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Runs the load with each number of threads. Errors: no such client; a request fails.
pub(crate) fn run(client: &str, servers: &str, load: &'static Load, threads: &[usize]) -> Result<()> {
    match client {
        "larder" => larder::run(Protocol::Meta, servers, load, threads),
        "larder-text" => larder::run(Protocol::Text, servers, load, threads),
        "larder-blocking" => larder::run_blocking(servers, load, threads),
        "memcache" => memcache::run(servers, load, threads),
        "async-memcached" => async_memcached::run(servers, load, threads),
        _ => Err(format!("no client is called {client:?}").into()),
    }
}

/// A client that blocks. Each thread has one.
trait Client {
    fn set(&mut self, key: &str, value: &str) -> Result<()>;

    /// How many were found.
    fn get(&mut self, keys: &[&str]) -> Result<usize>;
}

/// Stores all, warms up, and runs the load with each number of threads.
fn run_threads<C: Client>(
    load: &Load,
    threads: &[usize],
    connect: impl Fn() -> Result<C> + Sync,
) -> Result<()> {
    in_parallel(PREPARING, |thread| {
        let mut client = connect()?;
        for (key, value) in load.objects(thread, PREPARING) {
            client.set(key, value)?;
        }
        Ok(Figures::default())
    })?;
    let ask = |threads, secs| in_parallel(threads, |_| ask(&mut connect()?, load, secs));
    ask(PREPARING, WARM_UP_SECS)?;
    println!("ready");
    for &threads in threads {
        let watch = Watch::start();
        let figures = ask(threads, load.secs)?;
        watch.print(threads, figures);
    }
    Ok(())
}

fn ask(client: &mut impl Client, load: &Load, secs: f64) -> Result<Figures> {
    let end = Instant::now() + Duration::from_secs_f64(secs);
    let mut figures = Figures::default();
    let mut now = Instant::now();
    while now < end {
        let operation = load.next();
        let start = now;
        match operation {
            Operation::Set(key, value) => {
                client.set(key, value)?;
                now = Instant::now();
                figures.set(now - start);
            }
            Operation::Get(keys) => {
                let found = client.get(&keys)?;
                now = Instant::now();
                figures.get(now - start, keys.len() - found);
            }
        }
    }
    Ok(figures)
}

fn in_parallel(threads: usize, work: impl Fn(usize) -> Result<Figures> + Sync) -> Result<Figures> {
    thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let mut all = Figures::default();
        for thread in running {
            all = all.add(thread.join().map_err(|_| "a thread panicked")??);
        }
        Ok(all)
    })
}

/// A client of tasks, cloned or connected for each.
trait AsyncClient: Sized + Send + 'static {
    fn set(&mut self, key: &str, value: &str) -> impl Future<Output = Result<()>> + Send;

    /// How many were found.
    fn get(&mut self, keys: &[&str]) -> impl Future<Output = Result<usize>> + Send;
}

/// [`run_threads`], with tasks for threads.
async fn run_tasks<C, F>(load: &'static Load, tasks: &[usize], connect: impl Fn() -> F) -> Result<()>
where
    C: AsyncClient,
    F: Future<Output = Result<C>>,
{
    let mut storing = Vec::new();
    for task in 0..PREPARING {
        let mut client = connect().await?;
        storing.push(async move {
            for (key, value) in load.objects(task, PREPARING) {
                client.set(key, value).await?;
            }
            Ok(Figures::default())
        });
    }
    concurrently(storing).await?;
    ask_all(load, PREPARING, WARM_UP_SECS, &connect).await?;
    println!("ready");
    for &tasks in tasks {
        let watch = Watch::start();
        let figures = ask_all(load, tasks, load.secs, &connect).await?;
        watch.print(tasks, figures);
    }
    Ok(())
}

async fn ask_all<C, F>(
    load: &'static Load,
    tasks: usize,
    secs: f64,
    connect: impl Fn() -> F,
) -> Result<Figures>
where
    C: AsyncClient,
    F: Future<Output = Result<C>>,
{
    let mut asking = Vec::new();
    for _ in 0..tasks {
        let client = connect().await?;
        asking.push(ask_async(client, load, secs));
    }
    concurrently(asking).await
}

async fn ask_async(mut client: impl AsyncClient, load: &'static Load, secs: f64) -> Result<Figures> {
    let end = Instant::now() + Duration::from_secs_f64(secs);
    let mut figures = Figures::default();
    let mut now = Instant::now();
    while now < end {
        let operation = load.next();
        let start = now;
        match operation {
            Operation::Set(key, value) => {
                client.set(key, value).await?;
                now = Instant::now();
                figures.set(now - start);
            }
            Operation::Get(keys) => {
                let found = client.get(&keys).await?;
                now = Instant::now();
                figures.get(now - start, keys.len() - found);
            }
        }
    }
    Ok(figures)
}

/// Each as a task of its own.
async fn concurrently<W>(work: Vec<W>) -> Result<Figures>
where
    W: Future<Output = Result<Figures>> + Send + 'static,
{
    let tasks: Vec<_> = work.into_iter().map(tokio::spawn).collect();
    let mut all = Figures::default();
    for task in tasks {
        all = all.add(task.await??);
    }
    Ok(all)
}

/// Threads, or tasks, that store the objects and warm up.
const PREPARING: usize = 8;
const WARM_UP_SECS: f64 = 1.0;
