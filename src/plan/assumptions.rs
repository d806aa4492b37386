//! What goes into the figures of a plan, in words.

use super::model::Model;
use super::report::{EXCHANGE_MS, PlanOptions, Way};
use crate::error::grouped;

/// What goes into the figures, and what does not.
pub(super) fn of(model: &Model<'_>, options: &PlanOptions) -> Vec<String> {
    let rates = options.rates;
    let alone = model.step(1.0);
    let gb = model.epoch_bytes() / 1e9;
    // Of all nodes, whatever the loss reaches.
    let at_hand = model.nodes() * model.network.at_hand * model.network.element as f64;
    let compute = match options.epoch {
        Some(ms) if options.scale == 1.0 => format!("compute: {ms} ms on one device, as measured (--epoch)"),
        Some(ms) => format!(
            "compute: {ms} ms on one device, as measured (--epoch) on the data as they are; what of it is no launches, \
             times the bytes of the layers of a graph {} times as large",
            options.scale
        ),
        None => format!(
            "compute: {gb:.1} GB that the layers move, forward and backward, at the device's copy rate of {} GB/s, and \
             launches. Measured epochs took 1.3 to 2.1 times as long: --epoch MS, as a training says at its end or \
             `bench scale --devices 1` of Stage 2, is better",
            rates.device
        ),
    };
    let link = match rates.link {
        Some(link) => format!("between devices of a host {link} GB/s"),
        None => "between devices of a host 254 GB/s for two and 325 for more, as measured on 2 and 4 H200".into(),
    };
    let mut lines = vec![
        compute,
        match model.way {
            Way::MiniBatches if options.epoch.is_some() => {
                "launches: what the measured epoch takes longer than for its bytes; every device has all of them".to_owned()
            }
            _ => format!(
                "launches: {:.2} ms of an epoch, {} us of the host for each kernel (--launch-time), of which every device \
                 has all; kernels as they were counted in Stage 2",
                model.launch_ms(options.epoch, rates),
                rates.launch
            ),
        },
        format!(
            "exchanges: {EXCHANGE_MS} ms for each, {link}; between hosts {} GB/s a device (the default, 50, is 400 \
             Gbit/s, assumed and never measured); more than four devices and several hosts have not been measured",
            rates.network
        ),
        match model.way == Way::AllRows && model.network.crosses_beside {
            true => {
                "hidden: rows of a node type cross while those of another are computed; counted is half of what could hide \
                     (on two H200 nothing of 58 M edges did, and three quarters of 464 M)"
                    .to_owned()
            }
            false => "hidden: nothing crosses beside computation".to_owned(),
        },
    ];
    if model.way != Way::MiniBatches {
        lines.push(
            "scoring: what a device holds while it scores its rows for a validation or at the end, an upper bound; \
             all nodes forward alone over all edges take their launches and their bytes at the device's copy rate (of Stage 2 \
             on an H200 19.0 ms, where 23.8 were measured)"
                .to_owned(),
        );
    }
    lines.extend(match model.way {
        Way::AllRows => vec![
            "every device holds all features and the edges into its rows, by rows and by columns; the scores and \
             gradients of hidden rows are computed by each for all rows"
                .to_owned(),
            "rows are sent from each device to each other one, and gradients of them back, stored as the rows are"
                .to_owned(),
        ],
        Way::ReachableRows => vec![format!(
            "every device holds graph and features, and of several each also the edges into its rows, to score; \
             the rows that a part of the loss reaches are estimated from degrees, as if edges were drawn one by one: on \
             one device {:.0} % of the activations of all rows",
            100.0 * (alone.activations - at_hand) / (2.0 * (model.results(model.nodes()) - at_hand)).max(1.0)
        )],
        Way::MiniBatches => vec![
            format!(
                "{:.0} mini-batches of about {} rows of features on one device, estimated from degrees",
                model.steps(),
                grouped(alone.fetched as usize)
            ),
            "every device holds the graph, and all features where they take a quarter of --memory at most (without it: \
             always), else a share of them (loader.hot); where devices divide them (loader.transfer) its part beside that \
             share, and all rows of a mini-batch are exchanged, as if none were in the share"
                .to_owned(),
            "devices of one host divide features by themselves where their parts take a quarter of --memory at most, and \
             no row crosses hosts; else all devices do, and a row crosses once for a mini-batch and a host: not measured \
             on several hosts"
                .to_owned(),
        ],
    });
    if options.scale != 1.0 {
        lines.push(format!(
            "nodes, edges and labels are those of the directory times {}, degrees are the same",
            options.scale
        ));
    }
    lines.push(
        "not counted: validation, host memory and what the host prepares, the allocator's reserve, values and ages of \
         edges, a node's own transform in Stage 2, several heads there, the loss, features with few entries, chunks of \
         rows in time"
            .to_owned(),
    );
    lines
}
