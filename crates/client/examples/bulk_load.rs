//! Stores many items on all servers at once, and reads them back: `<key> <value>` on each line of standard input.
//!
//! ```sh
//! seq 1000000 | sed 's/.*/key& value&/' |
//!     MEMCACHED_SERVERS=127.0.0.1:11211 cargo run --release -p larder-client --example bulk_load
//! ```

use std::error::Error;
use std::io::{BufRead, stdin};
use std::time::{Duration, Instant};

use larder_client::{AsyncClient, Distribution, Servers};

/// Items that are sent together.
const BATCH_ITEMS: usize = 10_000;
const TTL: Duration = Duration::from_secs(60 * 60);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = AsyncClient::builder()
        .servers(Servers::from_env()?)
        .distribution(Distribution::Ketama)
        // For a batch.
        .timeout(Duration::from_secs(30))
        .build();
    let begin = Instant::now();
    let (mut stored, mut failed, mut read) = (0, 0, 0);
    let mut lines = stdin().lock().lines();
    loop {
        let batch = lines.by_ref().take(BATCH_ITEMS).collect::<Result<Vec<_>, _>>()?;
        if batch.is_empty() {
            break;
        }
        let items = || batch.iter().filter_map(|line| line.split_once(' '));
        for result in client.set_many(items(), TTL).await {
            match result {
                Ok(()) => stored += 1,
                Err(error) => {
                    failed += 1;
                    eprintln!("{error}");
                }
            }
        }
        let mut values = client.get_many(items().map(|(key, _)| key));
        while let Some(arrival) = values.next().await {
            match arrival {
                Ok(_) => read += 1,
                Err(failure) => eprintln!("{failure}"),
            }
        }
    }
    println!("{stored} stored, {failed} failed, {read} read back in {:.1} s", begin.elapsed().as_secs_f64());
    Ok(())
}
