//! larderd.

#![forbid(unsafe_code)]

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use larder_engine::Config;
use larder_replication::wire::Token;
use larder_server::access::TokenFile;
use larder_server::clock::Clock;
use larder_server::conn::authenticator::Authenticator;
use larder_server::control::{self, Stop};
use larder_server::namespaces::{
    self, BackingOf, Namespaces, NamespacesFile, Plan, StoredNamespace, WarmCaches,
};
use larder_server::net::poller::Poller;
use larder_server::net::tls::Tls;
use larder_server::net::worker::Worker;
use larder_server::net::worker_pool::WorkerPool;
use larder_server::observe::journal;
use larder_server::persistence::{self, Persistence, StoreSettings};
use larder_server::replication;
use larder_server::shared::Shared;
use larder_server::startup::address_space;
use larder_server::startup::daemon::{self, PidFile};
use larder_server::startup::endpoints::Endpoints;
use larder_server::startup::large_pages;
use larder_server::startup::numa;
use larder_server::startup::options::{self, EXIT_OS_ERROR, Outcome, Refusal};
use larder_server::startup::pollers;
use larder_server::startup::privileges;
use larder_server::startup::random;
use larder_server::startup::rehearsal;
use larder_server::startup::sandbox;
use larder_server::startup::settings::Settings;
use larder_server::startup::signals::Signals;
use larder_server::startup::systemd::Supervisor;
use larder_store::Store;

fn main() -> ExitCode {
    let outcome = options::parse(std::env::args_os()).and_then(|outcome| match outcome {
        Outcome::Serve(settings) => serve(*settings),
        Outcome::Print(text) => {
            // An error means that stdout was closed.
            let _ = io::stdout().write_all(text.as_bytes());
            Ok(())
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Refusal { exit_code, message }) => {
            journal::refuse(&message);
            ExitCode::from(exit_code)
        }
    }
}

/// Runs the server, from the settings to its end. Steps that can fail come before it goes to the background, so that
/// the caller sees the failure. Names that another server may hold are taken after those steps; what can fail and has
/// to come later is rehearsed before. Steps that need root come before privileges are dropped. Threads come last,
/// because the other steps need a process with one thread.
fn serve(mut settings: Settings) -> Result<(), Refusal> {
    journal::open(&settings.journal, settings.verbosity);
    settings.notes.iter().for_each(|note| tracing::info!("{note}"));
    let no_signals = |error| Refusal::new(EXIT_OS_ERROR, format!("failed to take over signals: {error}"));
    Signals::hold_back().map_err(no_signals)?;
    let supervisor = Supervisor::of_environment();
    if settings.core_dumps {
        privileges::allow_core_dumps()?;
    }
    let target = privileges::target(&settings)?;
    let secrets = Secrets::read(&settings)?;
    let namespaces_file = NamespacesFile::read(&settings)?;
    let reloaded = secrets
        .files()
        .into_iter()
        .chain(namespaces_file.iter().filter_map(|file| Some(file.path()?.into())));
    let reloaded: Vec<PathBuf> = reloaded.collect();
    let mut endpoints = Endpoints::open(&mut settings)?;
    let (segments, more) = settings.store.as_ref().map_or((0, 0), StoreSettings::segment_descriptors);
    let own = settings.own_descriptors() + endpoints.descriptors() + segments;
    settings.connections_max = privileges::allow_descriptors(settings.connections_max, own, more)?;
    let pollers = pollers::open(&settings)?;
    address_space::share();
    announce(&settings);
    let plan = Plan::new(namespaces_file, &settings, &config(&settings)?)?;
    let (warm, clock) = WarmCaches::open(&plan, settings.memory_file.as_deref(), target.as_ref())?;
    let clock = Arc::new(clock);
    let persistence =
        (settings.store.as_ref()).map(|store| Persistence::new(settings.threads, store, Arc::clone(&clock)));
    let backing =
        persistence.as_ref().map(|persistence| |namespace: &StoredNamespace| persistence.backing(namespace));
    let backing = backing.as_ref().map(|backing| backing as BackingOf<'_>);
    let store = settings.store.as_ref().map(|store| store.open(target.as_ref())).transpose()?;
    let namespaces = namespaces::build(plan, &settings, backing, warm)?;
    let confine = || {
        if !settings.drop_privileges {
            return Ok(());
        }
        let failed = |error| Refusal::new(EXIT_OS_ERROR, format!("failed to start: {error}"));
        let directories = settings.store.as_ref().map(StoreSettings::create_directories);
        sandbox::sandbox(&reloaded, &directories.transpose().map_err(failed)?.unwrap_or_default())
    };
    rehearsal::rehearse(target.as_ref(), confine)?;
    // Before others learn our process id.
    let signals = Signals::take_over().map_err(no_signals)?;
    let port_file = std::env::var_os("MEMCACHED_PORT_FILENAME").map(PathBuf::from);
    endpoints.take_names(&settings, target.as_ref(), port_file.as_deref())?;
    namespaces.engines().iter().for_each(|engine| numa::spread(engine));
    endpoints.announce(&settings, secrets.authenticator.is_some());
    if let Some(target) = &target {
        target.announce();
    }
    if settings.daemon {
        daemon::detach(&settings)?;
    }
    if settings.lock_memory {
        privileges::allow_locked_memory();
    }
    let pid_file = settings.pid_file.as_deref().and_then(|path| PidFile::write(path, target.as_ref()));
    if let Some(target) = &target {
        target.assume()?;
    }
    if settings.lock_memory {
        privileges::lock_memory();
    }
    if let Some(web) = &mut endpoints.web {
        web.open_process_files();
    }
    confine()?;

    let is_daemon = settings.daemon;
    let parts = Parts { clock, namespaces, persistence, store, secrets };
    let served = work(settings, parts, endpoints, pollers, &signals, supervisor);
    if let Some(pid_file) = pid_file.filter(|_| is_daemon || served.is_err()) {
        // The user that we have become may not be allowed to.
        let _ = pid_file.remove();
    }
    served.map_err(|error| Refusal::new(EXIT_OS_ERROR, format!("failed to start: {error}")))
}

/// What a server is made of, beside its settings and sockets.
struct Parts {
    clock: Arc<Clock>,
    namespaces: Namespaces,
    persistence: Option<Persistence>,
    store: Option<Arc<dyn Store>>,
    secrets: Secrets,
}

/// Data from files that SIGHUP reads again.
struct Secrets {
    authenticator: Option<Authenticator>,
    tls: Option<Tls>,
    admin_token: Option<TokenFile>,
    backup_token: Option<TokenFile>,
    http_token: Option<TokenFile>,
    replication_token: Option<Token>,
}

impl Secrets {
    fn read(settings: &Settings) -> Result<Self, Refusal> {
        let (authenticator, tls) = (Authenticator::new(settings)?, Tls::load(&settings.tls)?);
        let token = |option, file: Option<&PathBuf>| TokenFile::read(option, file.map(PathBuf::as_path));
        let store = settings.store.as_ref();
        let backup_token_file = store.and_then(|store| store.backup_token_file.as_ref());
        let replication = store.and_then(|store| store.replication.as_ref());
        let replication_token_file = replication.and_then(|replication| replication.token_file.as_ref());
        Ok(Self {
            authenticator,
            tls,
            admin_token: token("--admin-token-file", settings.admin.token_file.as_ref())?,
            backup_token: token("--backup-token-file", backup_token_file)?,
            http_token: token("--http-token-file", settings.http.token_file.as_ref())?,
            replication_token: token("--replication-token-file", replication_token_file)?
                .map(|file| Token::new(file.bytes())),
        })
    }

    fn files(&self) -> Vec<PathBuf> {
        let passwords = self.authenticator.iter().map(|authenticator| authenticator.path().to_owned());
        let tokens = self.admin_token.iter().chain(&self.backup_token).chain(&self.http_token);
        let tokens = tokens.map(|token| token.path().to_owned());
        passwords.chain(tokens).chain(self.tls.iter().flat_map(Tls::files)).collect()
    }
}

fn announce(settings: &Settings) {
    let given: Vec<_> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    tracing::info!(
        version = larder_server::LARDER_VERSION,
        threads = settings.threads,
        memory_mib = settings.memory_bytes >> 20,
        connections_max = settings.connections_max,
        options = given.join(" "),
        "larderd starts"
    );
}

/// Starts the workers and waits for the end. After a graceful stop, or if the cache is kept, the workers finish their
/// requests; otherwise they end with the process.
#[allow(clippy::too_many_arguments)]
fn work(
    settings: Settings,
    parts: Parts,
    endpoints: Endpoints,
    pollers: Vec<Poller>,
    signals: &Signals,
    mut supervisor: Supervisor,
) -> io::Result<()> {
    let threads = settings.threads;
    let addresses = endpoints.addresses();
    let Endpoints { listeners, udp, web, replication: replication_listener } = endpoints;
    let Parts { clock, namespaces, persistence, store, secrets } = parts;
    let store_settings = settings.store.clone();
    let shared = Shared::new(namespaces, settings, clock)?
        .with_persistence(persistence)
        .with_authenticator(secrets.authenticator)
        .with_tls(secrets.tls)
        .with_admin_token(secrets.admin_token)
        .with_backup_token(secrets.backup_token)
        .with_http_token(secrets.http_token);
    let shared = Arc::new(shared);
    shared.connection_table.add_sockets(&listeners, &udp);
    let pool = Arc::new(WorkerPool::new(threads, listeners)?);
    let store = store_settings
        .as_ref()
        .zip(store)
        .map(|(settings, store)| persistence::Threads::start(&shared, &pool, settings, store))
        .transpose()?;
    let replication = store_settings
        .and_then(|store| store.replication)
        .map(|settings| {
            let token = secrets.replication_token;
            replication::Threads::start(&shared, &pool, &settings, token, replication_listener)
        })
        .transpose()?;
    let mut workers = Vec::new();
    for (index, (udp_sockets, poller)) in udp.into_iter().zip(pollers).enumerate() {
        let worker = Worker::new(index, Arc::clone(&shared), Arc::clone(&pool), udp_sockets, poller);
        let thread = std::thread::Builder::new().name(format!("larder-{index}"));
        workers.push(thread.spawn(move || {
            // Without one of its workers the server would leave clients hanging.
            if let Err(error) = worker.run() {
                tracing::error!("worker {index}: {error}");
                std::process::exit(EXIT_OS_ERROR.into());
            }
        })?);
    }
    if let Some(web) = web {
        web.start(Arc::clone(&shared), Arc::clone(&pool))?;
    }
    let tell = || tracing::info!(pid = std::process::id(), addresses, "Serving");
    // A person at a terminal wants to know; programs expect memcached's silence.
    if shared.settings.daemon {
        tell()
    } else {
        journal::tell_a_person(&shared.settings.journal, tell)
    }
    supervisor.ready(&format!("Serving {addresses}"));
    let stop = control::run(&shared, &pool, signals, &mut supervisor)?;
    let asked = Instant::now();
    // What stays must be whole.
    if stop == Stop::Gracefully || store.is_some() || shared.namespaces.are_kept() {
        pool.stop();
        for worker in workers {
            let _ = worker.join();
        }
    }
    if let Some(replication) = replication {
        replication.stop();
    }
    if let Some(store) = store {
        store.stop();
    }
    if let Some(items) = shared.namespaces.keep() {
        tracing::info!(items, "the cache is kept for the next start");
    }
    tracing::info!(stop_millis = asked.elapsed().as_millis() as u64, "Exiting normally");
    Ok(())
}

fn config(settings: &Settings) -> Result<Config, Refusal> {
    let hash_key =
        random::key().map_err(|error| Refusal::new(EXIT_OS_ERROR, format!("no random numbers: {error}")))?;
    let large_pages = large_pages::allowed(settings.large_pages);
    Ok(Config { large_pages, ..settings.engine_config(hash_key) })
}
