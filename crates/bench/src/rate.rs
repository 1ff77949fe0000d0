//! The rate of a whole scenario.

use crate::scenario::{Arrival, Group, Scenario, Spacing};

impl Scenario {
    /// Makes every group an open loop, with `rate_per_sec` for all together. Each keeps its share of the rate; if any
    /// had no rate, the shares are those of the connections.
    pub fn set_rate_per_sec(&mut self, rate_per_sec: f64) {
        let rates: Option<Vec<f64>> = self.groups.iter().map(rate_of).collect();
        let shares =
            rates.unwrap_or_else(|| self.groups.iter().map(|group| group.connections as f64).collect());
        let sum: f64 = shares.iter().sum();
        for (group, share) in self.groups.iter_mut().zip(shares) {
            let spacing =
                if let Arrival::Open { spacing, .. } = group.arrival { spacing } else { Spacing::default() };
            let rate_per_sec = rate_per_sec * share / sum;
            group.arrival = Arrival::Open { rate_per_sec, rate_end_per_sec: None, spacing };
        }
    }
}

fn rate_of(group: &Group) -> Option<f64> {
    match group.arrival {
        Arrival::Closed => None,
        Arrival::Paced { rate_per_sec } | Arrival::Open { rate_per_sec, .. } => {
            (rate_per_sec > 0.0).then_some(rate_per_sec)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(rate_per_sec: f64, spacing: Spacing) -> Arrival {
        Arrival::Open { rate_per_sec, rate_end_per_sec: None, spacing }
    }

    fn scenario(groups: [(usize, Arrival); 2]) -> Scenario {
        let group = |(connections, arrival)| Group { connections, arrival, ..Group::default() };
        Scenario { groups: groups.map(group).into(), ..Scenario::default() }
    }

    fn arrivals(scenario: &Scenario) -> Vec<Arrival> {
        scenario.groups.iter().map(|group| group.arrival).collect()
    }

    #[test]
    fn shares_of_the_rate_stay() {
        let mut scenario =
            scenario([(1, open(100.0, Spacing::Even)), (50, Arrival::Paced { rate_per_sec: 300.0 })]);
        scenario.set_rate_per_sec(1000.0);
        assert_eq!(arrivals(&scenario), [open(250.0, Spacing::Even), open(750.0, Spacing::Poisson)]);
    }

    #[test]
    fn groups_without_a_rate_share_by_connections() {
        let mut scenario = scenario([(10, Arrival::Closed), (30, open(100.0, Spacing::Even))]);
        scenario.set_rate_per_sec(1000.0);
        assert_eq!(arrivals(&scenario), [open(250.0, Spacing::Poisson), open(750.0, Spacing::Even)]);
    }
}
