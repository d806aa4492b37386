//! The split that import stores with the data: by a draw, by groups or by time.

use std::collections::HashMap;

use super::description::{Description, Span, SplitBy, SplitTable, TimeFormat};
use super::edges::RelationEdges;
use super::events::{Named, no_entity, wrong_key};
use super::nodes::NodeType;
use super::values::TimeReader;
use crate::data::groups::Groups;
use crate::data::split::{Part, Split};
use crate::error::{Error, Result};
use crate::graph::{Events, SplitRule, StoredSplit, TimeWindow, date};

const DAY: i64 = 86_400;

/// What a split is made of; ids are global.
pub(super) struct Divider<'a> {
    pub types: &'a [NodeType],
    pub description: &'a Description,
    pub labels: &'a [(u32, u8)],
    pub events: Option<&'a Events>,
    pub named: &'a [Named],
    /// As the tables have them.
    pub relations: &'a [RelationEdges],
}

impl Divider<'_> {
    /// Divides the labels.
    ///
    /// # Errors
    /// [`Error::Data`] where a part would be without one of the classes, and for a part of a split by time in whose
    /// time no label lies; [`Error::Config`] for a split by time of labels without times, and for groups that are no
    /// node types; [`Error::Io`] of edges on disk.
    pub fn divide(&self) -> Result<StoredSplit> {
        let table = &self.description.split;
        let split = match table.by {
            SplitBy::Random => self.random(table)?,
            SplitBy::Group => self.by_group(table)?,
            SplitBy::Time => self.by_time(table)?,
        };
        split.windows.iter().try_for_each(|parts| Split::of_nodes(parts, self.labels).map(drop))?;
        Ok(split)
    }

    /// Which nodes scales may be learned from: of a split by time those that are known while the first window trains,
    /// otherwise all but the labels that are held out.
    pub fn fitted(&self, split: Option<&StoredSplit>) -> Vec<bool> {
        let offsets = self.offsets();
        let mut fitted = vec![true; self.num_nodes()];
        let Some(split) = split else { return fitted };
        let (Some(times), Some(events)) = (split.times(), self.events) else {
            let held_out = |(fitted, part): (&mut bool, &u8)| *fitted = *part <= 1;
            fitted.iter_mut().zip(split.parts()).for_each(held_out);
            return fitted;
        };
        let until = times.train[1];
        for (fitted, &time) in fitted.iter_mut().zip(&events.time) {
            *fitted = time == Events::NO_TIME || time < until;
        }
        // Of entities those that an event of that time names.
        let mut entities: HashMap<usize, Vec<bool>> = HashMap::new();
        for named in self.named.iter().filter(|named| !self.types[named.entity].is_of_events()) {
            let nodes = self.types[named.entity].ids.len();
            let seen = entities.entry(named.entity).or_insert_with(|| vec![false; nodes]);
            let times = &events.time[offsets[named.events]..];
            for (&entity, &time) in named.of_event.iter().zip(times) {
                if entity != Events::NO_NODE && time < until {
                    seen[entity as usize] = true;
                }
            }
        }
        for (entity, seen) in entities {
            fitted[offsets[entity]..][..seen.len()].copy_from_slice(&seen);
        }
        fitted
    }

    fn offsets(&self) -> Vec<usize> {
        let nodes = self.types.iter().map(|node_type| node_type.ids.len());
        nodes.scan(0, |end, count| Some(std::mem::replace(end, *end + count))).collect()
    }

    fn num_nodes(&self) -> usize {
        self.types.iter().map(|node_type| node_type.ids.len()).sum()
    }

    fn stored(&self, rule: SplitRule, Split { train, validation, test }: &Split) -> StoredSplit {
        StoredSplit::of_parts(rule, self.num_nodes(), [train, validation, test])
    }

    fn random(&self, table: &SplitTable) -> Result<StoredSplit> {
        let fractions = table.fractions().unwrap_or_default();
        let offsets = self.offsets();
        let type_of = |node: u32| offsets.partition_point(|&offset| offset <= node as usize) - 1;
        let split = Split::stratified(self.labels, type_of, fractions, table.seed)?;
        let rule = SplitRule::Random {
            seed: table.seed,
            train: fractions.train,
            validation: fractions.validation,
            test: fractions.test,
        };
        Ok(self.stored(rule, &split))
    }

    fn by_group(&self, table: &SplitTable) -> Result<StoredSplit> {
        let offsets = self.offsets();
        let is_group: Vec<bool> = self.types.iter().map(|of| table.groups.contains(&of.name)).collect();
        if let Some(unknown) = table.groups.iter().find(|name| self.types.iter().all(|of| of.name != **name)) {
            let known: Vec<&str> = self.types.iter().map(|of| of.name.as_str()).collect();
            return Err(wrong_key(
                "split.groups",
                "node types of the tables",
                unknown,
                &format!("one of {}", known.join(", ")),
            ));
        }
        let mut groups = Groups::new(self.num_nodes());
        for relation in self.relations.iter().filter(|relation| is_group[relation.src] || is_group[relation.dst]) {
            let (src, dst) = (offsets[relation.src] as u32, offsets[relation.dst] as u32);
            relation.edges.for_each_key(|key| groups.join(src + key as u32, dst + (key >> 32) as u32))?;
        }
        let fractions = table.fractions().unwrap_or_default();
        let split = Split::of_groups(self.labels, |node| groups.of(node), fractions, table.seed)?;
        let rule = SplitRule::Group {
            groups: table.groups.clone(),
            seed: table.seed,
            train: fractions.train,
            validation: fractions.validation,
            test: fractions.test,
        };
        Ok(self.stored(rule, &split))
    }

    fn by_time(&self, table: &SplitTable) -> Result<StoredSplit> {
        let help = "add time = \"COLUMN\" to the [[nodes]] table of the labels, or split at random";
        let events =
            self.events.ok_or_else(|| wrong_key("split.by", "labels of events, which have times", "time", help))?;
        let timed: Vec<(i64, u32, u8)> = self
            .labels
            .iter()
            .filter_map(|&(node, label)| events.time_of(node).map(|time| (time, node, label)))
            .collect();
        if timed.is_empty() {
            return Err(wrong_key("split.by", "labels of events, which have times", "time", help));
        }
        let times = || timed.iter().map(|&(time, ..)| time).collect();
        let windows = match table.spans() {
            Some(spans) => {
                let last = timed.iter().map(|&(time, ..)| time).max().unwrap_or(0);
                let from = table.test_from.as_deref().map(read_time).transpose()?;
                // Whole days, where there are any.
                let from = from.unwrap_or_else(|| {
                    let end = if spans[2] % DAY == 0 { (last + DAY).div_euclid(DAY) * DAY } else { last + 1 };
                    end - spans[2] * table.windows as i64
                });
                let gap = self.gap(table, &timed, events, from);
                (0..table.windows as i64).map(|at| of_spans(spans, gap, from + at * spans[2])).collect()
            }
            None => {
                let [from, _] = of_shares(table, 0, times()).test;
                vec![of_shares(table, self.gap(table, &timed, events, from), times())]
            }
        };
        let blocked = table.blocked.as_ref().map(|name| self.entities(name)).transpose()?;
        windows.iter().try_for_each(|window| check_window(window, &timed))?;
        let parts = windows.iter().map(|window| self.parts_of(window, &timed, events, blocked.as_deref())).collect();
        let rule = SplitRule::Time { windows, blocked: table.blocked.clone() };
        Ok(StoredSplit { rule, windows: parts, window: 0 })
    }

    /// What is left out before validation and test, which begins at `test`: what the description says, otherwise the
    /// time until labels are known.
    fn gap(&self, table: &SplitTable, timed: &[(i64, u32, u8)], events: &Events, test: i64) -> i64 {
        if let Some(gap) = table.gap {
            return gap.0;
        }
        let labels = self.description.nodes.iter().filter_map(|table| table.label.as_ref());
        let delay = labels.filter_map(|label| label.delay).map(|delay| delay.0).max().unwrap_or(0);
        let offsets = self.offsets();
        let by_column: Vec<bool> = self.by_column().collect();
        let is_of = |node: u32| by_column[offsets.partition_point(|&offset| offset <= node as usize) - 1];
        let mut until_known = [Vec::new(), Vec::new()];
        for &(time, node, label) in timed.iter().filter(|&&(_, node, _)| is_of(node)) {
            let known = events.known[node as usize];
            if known <= test {
                until_known[usize::from(label)].push(known.saturating_sub(time).max(0));
            }
        }
        until_known.iter_mut().filter_map(|lags| most(lags)).fold(delay, i64::max)
    }

    /// By node type: whether a column alone says when labels became known.
    fn by_column(&self) -> impl Iterator<Item = bool> {
        self.types.iter().map(|of| {
            let table = self.description.nodes.iter().find(|table| table.node_type == of.name);
            let label = table.and_then(|table| table.label.as_ref());
            label.is_some_and(|label| label.known.is_some() && label.delay.is_none())
        })
    }

    /// What the user should know of a gap that the labels decided about.
    pub fn note_of_gap(&self, split: &StoredSplit) -> Option<String> {
        let times = split.times().filter(|_| self.description.split.gap.is_none() && self.by_column().any(|is| is))?;
        let gap = Span(times.test[0] - times.validation[1]);
        Some(format!("{gap} are left out before validation and test: so long do 19 of 20 labels of either class take"))
    }

    /// By global id, the entity of a type that an event names.
    fn entities(&self, name: &str) -> Result<Vec<u32>> {
        let offsets = self.offsets();
        let mut of_node = vec![Events::NO_NODE; self.num_nodes()];
        let mut found = false;
        for named in self.named.iter().filter(|named| self.types[named.entity].name == name) {
            found = true;
            of_node[offsets[named.events]..][..named.of_event.len()].copy_from_slice(&named.of_event);
        }
        let events = self.types.iter().position(NodeType::is_of_events).unwrap_or_default();
        if found { Ok(of_node) } else { Err(no_entity("split.blocked", name, events, self.types, self.named)) }
    }

    fn parts_of(
        &self,
        window: &TimeWindow,
        timed: &[(i64, u32, u8)],
        events: &Events,
        entity: Option<&[u32]>,
    ) -> Vec<u8> {
        let mut parts = vec![0; self.num_nodes()];
        let within = |time: i64, [from, to]: [i64; 2]| (from..to).contains(&time);
        for &(time, node, _) in timed {
            let ranges = [window.train, window.validation, window.test];
            let part = ranges.into_iter().position(|range| within(time, range));
            parts[node as usize] = part.map_or(0, |part| part as u8 + 1);
        }
        let Some(entity) = entity else { return parts };
        // When the first fraud of each entity since the training began became known.
        let mut first: HashMap<u32, i64> = HashMap::new();
        for &(time, node, label) in timed {
            let of = entity[node as usize];
            if label == 1 && of != Events::NO_NODE && time >= window.train[0] {
                let known = events.known[node as usize];
                first.entry(of).and_modify(|first| *first = known.min(*first)).or_insert(known);
            }
        }
        for &(time, node, _) in timed {
            let is_blocked = first.get(&entity[node as usize]).is_some_and(|&known| known <= time);
            if is_blocked && parts[node as usize] > 1 {
                parts[node as usize] = 0;
            }
        }
        parts
    }
}

/// A window whose test begins at `from`; a gap lies before validation and before the test.
fn of_spans([train, validation, test]: [i64; 3], gap: i64, from: i64) -> TimeWindow {
    let validation_end = from - gap;
    let train_end = validation_end - validation - gap;
    TimeWindow {
        train: [train_end - train, train_end],
        validation: [validation_end - validation, validation_end],
        test: [from, from + test],
    }
}

/// Shares of the labels in the order of time; equal times stay together, the gap leaves out what is late in a part.
fn of_shares(table: &SplitTable, gap: i64, mut times: Vec<i64>) -> TimeWindow {
    times.sort_unstable();
    let fractions = table.fractions().unwrap_or_default();
    let at = |share: f64| times[((share * times.len() as f64).round() as usize).min(times.len() - 1)];
    let (validation, test) = (at(fractions.train), at(fractions.train + fractions.validation));
    TimeWindow {
        train: [times[0], validation.saturating_sub(gap)],
        validation: [validation, test.saturating_sub(gap)],
        test: [test, times[times.len() - 1] + 1],
    }
}

/// What 19 of 20 do not exceed, in whole days where it is more than one.
fn most(lags: &mut [i64]) -> Option<i64> {
    lags.sort_unstable();
    let rank = (lags.len() * 19).div_ceil(20);
    let lag = *lags.get(rank.checked_sub(1)?)?;
    Some(if lag > DAY { (lag + DAY - 1) / DAY * DAY } else { lag })
}

/// Refuses a window with a part in whose time no label lies.
fn check_window(window: &TimeWindow, timed: &[(i64, u32, u8)]) -> Result<()> {
    let span = |[from, until]: [i64; 2]| format!("from {} until {}", date(from), date(until));
    let parts = [(Part::Train, window.train), (Part::Validation, window.validation), (Part::Test, window.test)];
    let is_empty = |range: &[i64; 2]| !timed.iter().any(|(time, ..)| (range[0]..range[1]).contains(time));
    let empty = parts.iter().filter(|(_, range)| is_empty(range));
    let empty: Vec<String> = empty.map(|&(part, range)| format!("{} ({})", part.name(), span(range))).collect();
    let times = || timed.iter().map(|&(time, ..)| time);
    let (false, Some(first), Some(last)) = (empty.is_empty(), times().min(), times().max()) else { return Ok(()) };
    Err(Error::Data {
        what: "the split by time".into(),
        expected: "labelled events in training, validation and test".into(),
        found: format!("none in {}: the labelled events go from {} to {}", empty.join(", "), date(first), date(last)),
        help:
            "set other lengths of train, validation and test, another test_from or another gap, which is the delay of \
               the labels unless it is given"
                .into(),
    })
}

fn read_time(text: &str) -> Result<i64> {
    let format = TimeFormat::default();
    let reader = TimeReader::new(&format);
    let time = reader.and_then(|reader| reader.read(text, false).ok().flatten());
    time.ok_or_else(|| wrong_key("split.test_from", "a time", text, "for example \"2018-08-08\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_end_a_gap_before_what_follows() {
        let window = of_spans([21, 7, 5], 3, 100);
        assert_eq!(window, TimeWindow { train: [66, 87], validation: [90, 97], test: [100, 105] });
        assert_eq!(window.known_until(), 97);
    }

    #[test]
    fn shares_are_cut_by_time_and_equal_times_stay_together() {
        let table = SplitTable::default();
        let times = vec![9, 1, 2, 3, 4, 5, 6, 6, 8, 7];
        let window = of_shares(&table, 0, times);
        // In order: 1 2 3 4 5 6 | 6 7 | 8 9 would part the two sixes.
        assert_eq!(window, TimeWindow { train: [1, 6], validation: [6, 8], test: [8, 10] });
        assert_eq!(of_shares(&table, 1, vec![1, 2, 3, 4, 5, 6, 6, 7, 8, 9]).validation, [6, 7]);
    }

    #[test]
    fn the_time_until_most_labels_are_known_is_one_in_whole_days_that_few_exceed() {
        let mut lags: Vec<i64> = (1..=40).map(|hours| hours * 3_600).collect();
        assert_eq!(most(&mut lags), Some(2 * DAY));
        assert_eq!(most(&mut lags[..20]), Some(19 * 3_600));
        lags.extend([1_000 * DAY; 2]);
        assert_eq!(most(&mut lags), Some(2 * DAY), "two of 42 do not count");
        assert_eq!((most(&mut [7 * DAY]), most(&mut [])), (Some(7 * DAY), None));
    }
}
