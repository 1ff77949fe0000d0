//! Renders what takes long, one page after the other.

use tokio::sync::Mutex;
use tokio::task::yield_now;

/// Requests render one at a time, in order of arrival. Other tasks of the thread run in between, so a probe waits for
/// one page or two.
#[derive(Default)]
pub(super) struct Renderer(Mutex<()>);

impl Renderer {
    /// Renders once it is this request's turn.
    pub(super) async fn in_turn<R>(&self, render: impl FnOnce() -> R) -> R {
        let _turn = self.0.lock().await;
        yield_now().await;
        render()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use tokio::runtime;
    use tokio::task::{LocalSet, yield_now};

    use super::*;

    /// Sixty clients ask for a hundred pages each; each of a probe's steps waits for one page at most.
    #[test]
    fn others_run_between_any_two_pages() {
        let runtime = runtime::Builder::new_current_thread().build().expect("a runtime");
        let (renderer, pages) = (Rc::new(Renderer::default()), Rc::new(Cell::new(0)));
        LocalSet::new().block_on(&runtime, async {
            for _ in 0..60 {
                let (renderer, pages) = (Rc::clone(&renderer), Rc::clone(&pages));
                tokio::task::spawn_local(async move {
                    for _ in 0..100 {
                        renderer.in_turn(|| pages.set(pages.get() + 1)).await;
                    }
                });
            }
            for _ in 0..1000 {
                let before = pages.get();
                yield_now().await;
                assert!(pages.get() <= before + 1, "{} pages in one step", pages.get() - before);
            }
            assert!(pages.get() > 100, "{} pages in a thousand steps", pages.get());
        });
    }
}
