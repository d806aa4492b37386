//! The engine of a device: bins of a data set, uploaded once for all trees.

use graphsieve_kernels::device::{self, Failure};
use graphsieve_kernels::{BinColumn, BinValues, TreeBackend, TreeBins, TreeDevice};

use super::binning::BinMapper;
use super::dataset::{Column, Dataset};
use super::grow::split_features;
use super::grow_rule::GrowRule;
use super::refuse;
use crate::error::{Error, Result};

/// Rows and bins are numbered with 31 bits there.
const MOST_ROWS: usize = (1 << 31) - 1;
const MOST_BINS: usize = (1 << 29) - 1;

/// Uploads the bins of `data` for trees that grow by `rule`.
///
/// # Errors
/// [`Error::Data`] for more rows or bins than a device numbers, [`Error::Device`] for one without double precision.
pub(super) fn upload<B: TreeBackend>(data: &Dataset, rule: &GrowRule, device: &B::Device) -> Result<TreeDevice<B>> {
    let bins = data.mappers().iter().map(|mapper| mapper.num_bin as usize).sum();
    for (what, most, found) in [("rows", MOST_ROWS, data.rows()), ("bins of all features", MOST_BINS, bins)] {
        if found > most {
            let help = "grow the trees on the CPU, or on a sample";
            return Err(refuse::data(format!("{what} on a device"), format!("at most {most}"), found, help));
        }
    }
    let columns: Vec<BinColumn> = data.columns().iter().zip(data.mappers()).map(bin_column).collect();
    let bins = TreeBins::<B>::dense(&columns, data.rows(), device);
    TreeDevice::new(bins, &split_features(data, rule), &rule.split_rule()).map_err(|lack| Error::Device {
        device: format!("{device:?}"),
        reason: lack.to_string(),
        help: "trees grow on the CPU with --device cpu".into(),
    })
}

/// Fails when the device failed on its own thread. Call it after a read, which waits for everything queued before it.
///
/// # Errors
/// [`Error::DeviceFailed`] with the device's own words.
pub(super) fn check() -> Result<()> {
    match device::failure() {
        None => Ok(()),
        Some(Failure { reason, kept }) => Err(Error::DeviceFailed { work: "of the trees", reason, kept }),
    }
}

fn bin_column<'a>((column, mapper): (&'a Column, &BinMapper)) -> BinColumn<'a> {
    BinColumn {
        bins: match column {
            Column::U8(bins) => BinValues::U8(bins),
            Column::U16(bins) => BinValues::U16(bins),
        },
        num_bin: mapper.num_bin,
        left_out: (mapper.mfb_offset() == 1).then_some(0),
    }
}
