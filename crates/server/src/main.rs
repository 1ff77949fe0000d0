//! larderd.

#![forbid(unsafe_code)]

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use larder_engine::{Config, Engine};
use larder_server::clock::Clock;
use larder_server::confine;
use larder_server::control::{self, Stop};
use larder_server::crew::Crew;
use larder_server::daemon::{self, PidFile};
use larder_server::exposure;
use larder_server::guard::Guard;
use larder_server::listen;
use larder_server::options::{self, EXIT_FAILURE, EXIT_OS_ERROR, Outcome, Refusal};
use larder_server::privilege;
use larder_server::random;
use larder_server::settings::Settings;
use larder_server::shared::Shared;
use larder_server::signals::Signals;
use larder_server::tls::Tls;
use larder_server::udp;
use larder_server::web::Web;
use larder_server::worker::Worker;

fn main() -> ExitCode {
    let outcome = options::parse(std::env::args_os().skip(1)).and_then(|outcome| match outcome {
        Outcome::Serve(settings) => serve(*settings),
        Outcome::Print(text) => {
            // Whoever closed our stdout does not want the rest.
            let _ = io::stdout().write_all(text.as_bytes());
            Ok(())
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Refusal { exit_code, message }) => {
            eprintln!("{message}");
            ExitCode::from(exit_code)
        }
    }
}

/// From the settings to a running server, to its end. What can be refused comes before the step into the background, so
/// that whoever started us learns of it; what needs root comes before rights are given up; threads come last, since the
/// steps before are for a process with one.
fn serve(settings: Settings) -> Result<(), Refusal> {
    if settings.verbosity > 0 {
        settings.notes.iter().for_each(|note| eprintln!("larderd: {note}"));
    }
    if settings.core_dumps {
        privilege::allow_core_dumps()?;
    }
    let target = privilege::target(&settings)?;
    let guard = Guard::new(&settings)?;
    let tls = Tls::load(&settings.tls)?;
    let listeners = listen::bind(&settings)?;
    let udp = udp::bind(&settings)?;
    let web = Web::bind(&settings)?;
    let admin = web.as_ref().map_or(&[][..], Web::listeners);
    // All workers' sockets have the same addresses.
    let udp_of_one = udp.first().map_or(&[][..], Vec::as_slice);
    let sockets = listeners.len() + udp.iter().map(Vec::len).sum::<usize>();
    let descriptors = settings.connections_max as usize
        + sockets
        + settings.own_descriptors()
        + web.as_ref().map_or(0, Web::descriptors);
    privilege::allow_descriptors(descriptors as u64)?;
    if let Some(path) = std::env::var_os("MEMCACHED_PORT_FILENAME") {
        listen::write_port_file(path.as_ref(), &listeners, udp_of_one, admin)
            .map_err(|error| Refusal::new(EXIT_FAILURE, format!("Failed to write the port file: {error}")))?;
    }
    let engine = Engine::new(config(&settings)?).map_err(|error| {
        Refusal::new(
            EXIT_OS_ERROR,
            format!("failed to reserve {} bytes of memory: {error}", settings.memory_bytes),
        )
    })?;
    if let Some(target) = &target {
        target.hand_over(&listeners)?;
        target.hand_over(admin)?;
    }
    let warnings = exposure::warnings(&listeners, udp_of_one, guard.is_some());
    for warning in warnings.into_iter().chain(web.iter().flat_map(exposure::admin_warnings)) {
        eprintln!("{warning}");
    }
    if settings.daemon {
        daemon::detach(&settings)?;
    }
    if settings.lock_memory {
        privilege::lock_memory();
    }
    // Before anybody learns whom to send them to.
    let signals = Signals::take_over()
        .map_err(|error| Refusal::new(EXIT_OS_ERROR, format!("failed to take over signals: {error}")))?;
    let pid_file = settings.pid_file.as_deref().and_then(PidFile::write);
    if let Some(target) = &target {
        target.assume()?;
    }
    if settings.drop_privileges {
        let passwords = guard.iter().map(|guard| guard.path().to_owned());
        let reloaded: Vec<_> = passwords.chain(tls.iter().flat_map(Tls::files)).collect();
        confine::confine(&reloaded)?;
    }

    let stop = work(settings.clone(), engine, guard, tls, Bound { listeners, udp, web }, &signals)
        .map_err(|error| Refusal::new(EXIT_OS_ERROR, format!("failed to start: {error}")))?;
    if stop == Stop::Gracefully {
        eprintln!("Gracefully stopping");
    } else if settings.verbosity > 0 {
        eprintln!("Exiting normally");
    }
    if let Some(pid_file) = pid_file.filter(|_| settings.daemon) {
        // The user we became may not be allowed to.
        let _ = pid_file.remove();
    }
    Ok(())
}

/// All that clients and operators come in by.
struct Bound {
    listeners: Vec<listen::Listener>,
    /// By worker.
    udp: Vec<Vec<udp::Socket>>,
    web: Option<Web>,
}

/// Starts the workers and waits for the end. They end with the process, unless they are to finish what they are at.
fn work(
    settings: Settings,
    engine: Arc<Engine>,
    guard: Option<Guard>,
    tls: Option<Tls>,
    Bound { listeners, udp, web }: Bound,
    signals: &Signals,
) -> io::Result<Stop> {
    let threads = settings.threads;
    let shared = Arc::new(Shared::new(engine, settings, Clock::start())?.with_guard(guard).with_tls(tls));
    shared.roster.add_sockets(&listeners, &udp);
    let crew = Arc::new(Crew::new(threads, listeners)?);
    let mut workers = Vec::new();
    for (index, udp_sockets) in udp.into_iter().enumerate() {
        let worker = Worker::new(index, Arc::clone(&shared), Arc::clone(&crew), udp_sockets)?;
        let thread = std::thread::Builder::new().name(format!("larder-{index}"));
        workers.push(thread.spawn(move || {
            // A server without one of its workers would leave clients hanging.
            if let Err(error) = worker.run() {
                eprintln!("larderd: worker {index}: {error}");
                std::process::exit(EXIT_OS_ERROR.into());
            }
        })?);
    }
    if let Some(web) = web {
        web.start(Arc::clone(&shared), Arc::clone(&crew))?;
    }
    let stop = control::run(&shared, &crew, signals)?;
    if stop == Stop::Gracefully {
        crew.stop();
        for worker in workers {
            let _ = worker.join();
        }
    }
    Ok(stop)
}

fn config(settings: &Settings) -> Result<Config, Refusal> {
    let hash_key =
        random::key().map_err(|error| Refusal::new(EXIT_OS_ERROR, format!("no random numbers: {error}")))?;
    Ok(Config {
        memory_bytes: settings.memory_bytes,
        item_bytes_max: settings.item_bytes_max,
        evict: settings.evict,
        // One for each worker, one for the background work.
        handles_max: settings.threads + 1,
        index_power: settings.index_power(),
        hash_key,
    })
}
