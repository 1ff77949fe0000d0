//! Makes a story at whose end two servers differ as short as it can be made.

use super::request::{Burst, CasShown};
use super::story::{Parting, Teller, write_lines};
use crate::Result;

/// Leaves out bursts, cuts and requests as long as the servers still part.
pub(crate) fn minimise(
    teller: &mut Teller,
    mut story: Vec<Burst>,
    mut parting: Parting,
) -> Result<(Vec<Burst>, Parting)> {
    let mut tries = TRIES_MAX;
    let mut is_shorter = true;
    while is_shorter && tries > 0 {
        is_shorter = false;
        story.truncate(parting.burst + 1);
        let mut step = 0;
        while let Some(shorter) = without(&story, step) {
            tries -= 1;
            match teller.tell(&shorter)? {
                Some(earlier) => {
                    (story, parting) = (shorter, earlier);
                    story.truncate(parting.burst + 1);
                    is_shorter = true;
                }
                None => step += 1,
            }
            if tries == 0 {
                break;
            }
        }
    }
    Ok((story, parting))
}

/// The story as the blocks of a golden script.
pub(crate) fn script(story: &[Burst], parting: &Parting) -> String {
    let mut text = String::new();
    for burst in &story[..parting.burst] {
        text.push_str(&format!("[{}]\n", burst.connection));
        write_lines(&burst.write(&CasShown::default()), &mut text);
        text.push_str("---\n\n");
    }
    text.push_str(&format!("[{}]\n", story[parting.burst].connection));
    write_lines(parting.sent(), &mut text);
    text.push_str(&parting.shown());
    text
}

/// The story without its `step`th part: first whole bursts, then single requests, then cuts.
fn without(story: &[Burst], mut step: usize) -> Option<Vec<Burst>> {
    let mut shorter = story.to_vec();
    if step < story.len() {
        shorter.remove(step);
        return (!shorter.is_empty()).then_some(shorter).or_else(|| without(story, step + 1));
    }
    step -= story.len();
    for burst in &mut shorter {
        if step < burst.requests.len() {
            burst.requests.remove(step);
            return Some(shorter);
        }
        step -= burst.requests.len();
    }
    let burst = shorter.get_mut(step)?;
    if burst.cuts.is_empty() {
        return without(
            story,
            story.len() + story.iter().map(|burst| burst.requests.len()).sum::<usize>() + step + 1,
        );
    }
    burst.cuts.clear();
    Some(shorter)
}

const TRIES_MAX: u32 = 400;
