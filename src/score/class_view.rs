//! A node classifier seen through one of its classes, one against the rest, or through the class that it predicts of
//! each node: so that classes have the lists, the calibration and the explanations that scores of anomalies have.

use ndarray::Array2;

use crate::data::class_split::ClassSplit;
use crate::data::split::{Part, Split};
use crate::error::{Error, Result};
use crate::graph::{Classes, Dataset, Labels};
use crate::metrics::{Calibration, predicted_class};

/// The classes that a model may be asked for are named in a message up to this number of them.
const NAMED: usize = 20;

/// Class probabilities of all nodes, and which class is looked at.
#[derive(Debug)]
pub struct ClassView {
    /// `[nodes, classes]`, by global id.
    probabilities: Array2<f32>,
    /// The class with the highest probability, by global id.
    predicted: Vec<u32>,
    class: Option<u32>,
    /// How the run divided the labelled nodes. None for data that it was not trained on.
    pub split: Option<ClassSplit>,
    /// Of each class against the rest, by class; none at all where nothing was fitted.
    pub calibrations: Vec<Option<Calibration>>,
}

impl ClassView {
    /// Looks at `class`; without one at class 1 of two, and of more at each node's predicted class.
    ///
    /// # Errors
    /// [`Error::Usage`] for a class that the model does not have.
    pub fn new(probabilities: Array2<f32>, class: Option<u32>) -> Result<Self> {
        let classes = probabilities.ncols();
        let class = match class {
            Some(class) if class as usize >= classes => return Err(no_such_class(class, classes)),
            None if classes == 2 => Some(1),
            class => class,
        };
        let rows = probabilities.outer_iter();
        let predicted =
            rows.map(|row| row.as_slice().map_or_else(|| predicted_class(&row.to_vec()), predicted_class)).collect();
        Ok(Self { probabilities, predicted, class, split: None, calibrations: Vec::new() })
    }

    /// `[nodes, classes]`, by global id.
    pub fn probabilities(&self) -> &Array2<f32> {
        &self.probabilities
    }

    /// The class with the highest probability, by global id; of equal ones the first.
    pub fn predicted(&self) -> &[u32] {
        &self.predicted
    }

    /// Number of classes.
    pub fn num_classes(&self) -> usize {
        self.probabilities.ncols()
    }

    /// The class that is looked at; none where it is each node's predicted one.
    pub fn class(&self) -> Option<u32> {
        self.class
    }

    /// The class that the score of a node is the probability of.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn class_of(&self, node: u32) -> u32 {
        self.class.unwrap_or_else(|| self.predicted[node as usize])
    }

    /// The probability of [`class_of`](Self::class_of) every node, by global id.
    pub fn scores(&self) -> Vec<f32> {
        (0..self.predicted.len() as u32).map(|node| self.score(node)).collect()
    }

    fn score(&self, node: u32) -> f32 {
        self.probabilities[[node as usize, self.class_of(node) as usize]]
    }

    /// The calibrated probability of [`class_of`](Self::class_of) a node, where a calibration of that class was fitted.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn probability(&self, node: u32) -> Option<f64> {
        self.calibrations.get(self.class_of(node) as usize)?.as_ref()?.probability(self.score(node))
    }

    /// The calibration of the class that is looked at.
    pub fn calibration(&self) -> Option<&Calibration> {
        self.calibrations.get(self.class? as usize)?.as_ref()
    }

    /// Makes the probabilities of the class that is looked at those of nodes of which a share of `rate` is of it, see
    /// [`Calibration::at_base_rate`].
    pub fn correct(&mut self, rate: f64) {
        let calibration = self.class.and_then(|class| self.calibrations.get_mut(class as usize)?.as_mut());
        if let Some(calibration) = calibration {
            *calibration = calibration.at_base_rate(rate);
        }
    }

    /// The split of the run for the class that is looked at, against the rest.
    pub fn binary_split(&self) -> Option<Split> {
        Some(self.split.as_ref()?.against_rest(self.class?))
    }

    /// The part of the run's labels that the label of a node is in.
    pub fn part_of(&self, node: u32) -> Option<Part> {
        self.split.as_ref()?.part_of(node)
    }

    /// Makes the labels of the data those of this view: 1 for the class that is looked at and 0 for all others, or none
    /// where no class is. Binary labels become [`Dataset::classes`] first, which keep every class.
    pub fn relabel(&self, dataset: &mut Dataset) {
        if let (None, Some(labels)) = (&dataset.classes, &dataset.labels) {
            dataset.classes = Some(Classes::of_labels(labels, dataset.graph.num_nodes()));
        }
        let against_rest = |class: u32| {
            let labelled = dataset.classes.iter().flat_map(Classes::labelled);
            labelled.map(|(node, own)| (node, u8::from(own == class))).collect::<Vec<_>>()
        };
        let entries = self.class.map(against_rest).filter(|entries| !entries.is_empty());
        dataset.labels = entries.map(|entries| Labels { entries });
    }
}

fn no_such_class(class: u32, classes: usize) -> Error {
    let names = match classes <= NAMED {
        true => (0..classes).map(|class| class.to_string()).collect::<Vec<_>>().join(", "),
        false => format!("0 to {}", classes - 1),
    };
    Error::Usage {
        argument: format!("--class {class}"),
        expected: format!("a class of the model: {names}"),
        found: class.to_string(),
        help: "leave it out for the predicted class of each node".into(),
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;
    use crate::graph::HeteroGraph;

    fn view(class: Option<u32>) -> ClassView {
        let probabilities = array![[0.5f32, 0.25, 0.25], [0.25, 0.25, 0.5], [0.25, 0.5, 0.25], [0.5, 0.5, 0.0]];
        let mut view = ClassView::new(probabilities, class).unwrap();
        view.split = Some(ClassSplit { train: vec![(0, 0), (1, 1)], validation: vec![(2, 2)], test: vec![(3, 0)] });
        let calibration = Calibration::fit(&[0.2, 0.8], &[0, 1]).unwrap();
        view.calibrations = vec![None, Some(calibration.clone()), Some(calibration)];
        view
    }

    #[test]
    fn a_class_that_is_asked_for_is_looked_at_everywhere() {
        let view = view(Some(1));
        assert_eq!(view.scores(), [0.25, 0.25, 0.5, 0.5]);
        assert!((0..4).all(|node| view.class_of(node) == 1));
        assert_eq!(view.predicted(), [0, 2, 1, 0]);
        let split = view.binary_split().unwrap();
        assert_eq!((split.train, split.validation, split.test), (vec![(0, 0), (1, 1)], vec![(2, 0)], vec![(3, 0)]));
        assert_eq!(view.probability(0), view.calibration().unwrap().probability(0.25));
        assert_eq!(view.part_of(2), Some(Part::Validation));
    }

    #[test]
    fn without_a_class_each_node_is_seen_through_the_one_predicted() {
        let view = view(None);
        assert_eq!(view.scores(), [0.5; 4]);
        assert_eq!([0, 1, 2, 3].map(|node| view.class_of(node)), [0, 2, 1, 0]);
        assert!(view.binary_split().is_none() && view.calibration().is_none());
        let calibrated = [0, 1, 2, 3].map(|node| view.probability(node).is_some());
        assert_eq!(calibrated, [false, true, true, false], "class 0 has no calibration");
    }

    #[test]
    fn of_two_classes_the_second_is_looked_at_and_others_are_refused() {
        let two = |class| ClassView::new(array![[0.75f32, 0.25]], class);
        assert_eq!(two(None).unwrap().class(), Some(1));
        assert_eq!(two(Some(0)).unwrap().scores(), [0.75]);
        let error = two(Some(2)).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("--class 2: expected a class of the model: 0, 1, found 2"), "{error}");
        let many = ClassView::new(Array2::zeros((1, 300)), Some(300)).unwrap_err().to_string();
        assert!(many.contains("0 to 299"), "{many}");
    }

    #[test]
    fn labels_become_those_of_the_class_and_classes_are_kept() {
        let data = || {
            let graph = HeteroGraph::new(vec![("node".into(), 4)], Vec::new()).unwrap();
            Dataset::new(graph, None, Some(Labels { entries: vec![(0, 1), (3, 0)] }), None)
        };
        let entries = |dataset: &Dataset| dataset.labels.as_ref().map(|labels| labels.entries.clone());
        let mut binary = data();
        view(Some(0)).relabel(&mut binary);
        assert_eq!(entries(&binary), Some(vec![(0, 0), (3, 1)]), "the other way round");
        assert_eq!(binary.classes.as_ref().unwrap().of_node(), [Some(1), None, None, Some(0)]);
        let mut several = Dataset { classes: Some(Classes::new(vec![Some(2), None, Some(0), Some(1)])), ..data() };
        view(Some(1)).relabel(&mut several);
        assert_eq!(entries(&several), Some(vec![(0, 0), (2, 0), (3, 1)]));
        view(None).relabel(&mut several);
        assert_eq!((entries(&several), several.classes.unwrap().count()), (None, 3));
    }
}
