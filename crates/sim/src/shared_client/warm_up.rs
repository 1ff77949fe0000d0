//! Processes whose lists of servers change one after the other, with a warm-up: nothing old comes back.
//!
//! They ask in turn, so that each answer is known: what two of them do at the same moment with one key is another
//! matter, which `AsyncBuilder::warm_up` documents. A value that is missing is right: it is a cache.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use larder_client::{AsyncClient, Distribution, Servers};
use tokio::time::Instant;

use super::history::History;
use super::network::{Log, address};
use super::scenario::{Bug, ClientScenario};
use super::task::{Task, Verdict};
use super::wire::Board;
use super::{Totals, builder};

/// Lets all processes ask, from before the first change of a list until all warm-ups are over.
pub(super) async fn ask_in_turn(
    scenario: &ClientScenario,
    board: &Arc<Board>,
    log: Log,
) -> Result<Totals, String> {
    let scenario = &ClientScenario { timeout: MINUTE, keys: scenario.keys * 4, ..scenario.clone() };
    let mut rng = Rng::with_seed(scenario.seed ^ 0x9E37_79B9_7F4A_7C15);
    let history = Arc::new(Mutex::new(History::new(scenario.keys, false, true)));
    let (before, after) = if rng.bool() { (1, scenario.servers) } else { (scenario.servers, 1) };
    let client = |time: Duration| {
        let builder = builder(scenario, board).distribution(Distribution::Ketama);
        builder.connect_timeout(MINUTE).warm_up(time).build()
    };
    let task = |number: usize| {
        let is_short = number == 0 && scenario.has(Bug::ShortWarmUp);
        let client = client(if is_short { WARM_UP / 100 } else { WARM_UP });
        Task {
            number,
            scenario: Arc::new(scenario.clone()),
            client,
            history: Arc::clone(&history),
            totals: Arc::default(),
            log: log.clone(),
            started: Instant::now(),
        }
    };
    let tasks: Vec<Task> = (0..scenario.processes).map(task).collect();
    for task in &tasks {
        set_servers(&task.client, before)?;
    }
    // The lists before were empty.
    tokio::time::sleep(WARM_UP * 3).await;
    let mut totals = Totals::default();
    for key in 0..scenario.keys {
        tasks[0].ask(SET, key, 20).await?;
    }
    // The last process is late by almost the time of a warm-up, and nothing is asked meanwhile: those that have the new
    // list, and those that have not, would not see each other's changes.
    for task in &tasks {
        set_servers(&task.client, after)?;
        tokio::time::sleep(WARM_UP.mul_f64(0.9) / (scenario.processes as u32 - 1).max(1)).await;
        log.line(task.started, format_args!("process {} has {after} servers", task.number));
    }
    for _ in 0..scenario.operations * 4 {
        tokio::time::sleep(WARM_UP / 20).await;
        play(&tasks, &mut rng, &mut totals).await?;
    }
    Ok(totals)
}

/// One operation of one of them.
async fn play(tasks: &[Task], rng: &mut Rng, totals: &mut Totals) -> Result<(), String> {
    let task = &tasks[rng.usize(..tasks.len())];
    // Not those that count: a number may be missing.
    let kind = [GET, GET, DELETE, GET_MANY, rng.u32(..8)][rng.usize(..5)];
    let key = rng.usize(..task.scenario.keys);
    let verdict = task.ask(kind, key, 20).await?;
    task.log
        .line(task.started, format_args!("process {}: kind {kind} of key {key}: {verdict:?}", task.number));
    totals.operations += 1;
    match verdict {
        Verdict::Right => totals.right += 1,
        Verdict::Failed => return Err(format!("kind {kind} of key {key} fails, though nothing is wrong")),
    }
    Ok(())
}

fn set_servers(client: &AsyncClient, servers: usize) -> Result<(), String> {
    let list = Servers((0..servers).map(|server| address(server).into()).collect());
    client.set_servers(&list).map_err(|error| error.to_string())
}

const WARM_UP: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_secs(60);
/// See [`Task::ask`].
const GET: u32 = 0;
const SET: u32 = 3;
const DELETE: u32 = 5;
const GET_MANY: u32 = 11;
