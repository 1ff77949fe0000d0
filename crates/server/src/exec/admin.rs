//! Administrative commands that control the cache or report on it.

use larder_protocol::admin::{self, Admin, Classes, Crawler};
use larder_protocol::{Error, Reply};

use super::dump::Dump;
use super::{Answered, Done, Executor};

impl<'t> Executor<'_, '_, '_, 't> {
    /// Executes an administrative command.
    pub(super) fn administer(&mut self, admin: Admin) -> Answered<'t> {
        let done = match admin {
            Admin::Crawler(Crawler::Dump(format, classes)) => {
                let dump = self.dump(format, classes);
                match dump {
                    Ok(dump) => {
                        self.dump = Some(Box::new(dump));
                        return Err(Done::Begun);
                    }
                    Err(error) => Err(error),
                }
            }
            Admin::Crawler(crawler) => self.steer_crawler(crawler),
            Admin::Unneeded => Ok(()),
            Admin::Reassign(_) if !self.cx.shared.settings.accepted.slab_reassign => {
                Err(Error::ReassignDisabled)
            }
            Admin::Reassign(error) => Err(error),
            Admin::Watch(streams) => match self.may_watch() {
                Ok(()) => return Err(Done::Watch(streams)),
                Err(error) => Err(error),
            },
            Admin::MemoryLimit(megabytes) => {
                let is_changed = self.cx.shared.namespaces.set_memory_limit(u64::from(megabytes) << 20);
                if is_changed {
                    self.cx.shared.wake_control();
                    tracing::info!(megabytes, "memory limit changed");
                    Ok(())
                } else {
                    let megabytes_max = self.cx.shared.namespaces.memory_limit_max() >> 20;
                    tracing::info!(megabytes, megabytes_max, "memory limit not changed");
                    Err(Error::MemoryOutOfBounds)
                }
            }
            #[cfg(debug_assertions)]
            Admin::Clock(change) => {
                self.cx.shared.clock.change(change);
                Ok(())
            }
            #[cfg(not(debug_assertions))]
            Admin::Clock(_) => Err(Error::UnknownCommand),
        };
        Ok(done.map_or_else(Reply::Error, |()| Reply::Ok))
    }

    // lru_crawler metadump, mgdump
    fn dump(&self, format: admin::Dump, classes: Result<Classes, Error>) -> Result<Dump, Error> {
        if !self.cx.shared.crawler.is_enabled() {
            return Err(Error::CrawlerDisabled);
        }
        if !self.cx.shared.settings.dump {
            return Err(match format {
                admin::Dump::Metadata => Error::MetadumpNotAllowed,
                admin::Dump::Commands => Error::MgdumpNotAllowed,
            });
        }
        classes.map(|classes| Dump::keys(format, classes))
    }

    // watch
    fn may_watch(&self) -> Result<(), Error> {
        if !self.cx.shared.settings.watch {
            return Err(Error::WatchNotAllowed);
        }
        if self.cx.shared.log.has_room() { Ok(()) } else { Err(Error::TooManyWatchers) }
    }

    // lru_crawler enable, disable, sleep, tocrawl, crawl
    fn steer_crawler(&self, crawler: Crawler) -> Result<(), Error> {
        let shared = self.cx.shared;
        match crawler {
            Crawler::Enable if shared.crawler.enable(true) => Ok(()),
            Crawler::Enable => Err(Error::CrawlerEnabled),
            Crawler::Disable => {
                shared.crawler.enable(false);
                Ok(())
            }
            Crawler::Crawl(_) if !shared.crawler.is_enabled() => Err(Error::CrawlerDisabled),
            // Crawls all classes, whichever were asked for: looking into the others as well does no harm.
            Crawler::Crawl(classes) => {
                classes?;
                shared.crawler.start()?;
                shared.wake_control();
                Ok(())
            }
            Crawler::Unneeded | Crawler::Dump(..) => Ok(()),
        }
    }
}
