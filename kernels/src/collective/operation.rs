//! What ranks can do together.

use burn::tensor::DType;

use super::error::CollectiveFault;

/// An exchange that all ranks of a group call. Sums are those of the ranks, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectiveOperation {
    /// The sum, on every rank.
    AllReduce,
    /// The rows of all ranks one behind the other, on every rank.
    AllGather {
        /// Of each rank.
        rows: Vec<usize>,
    },
    /// The sum, of which every rank gets its rows.
    ReduceScatter {
        /// Of each rank.
        rows: Vec<usize>,
    },
    /// Rows for each rank one behind the other, against rows of each rank.
    AllToAll {
        /// To each rank.
        send: Vec<usize>,
        /// From each rank.
        receive: Vec<usize>,
    },
    /// What `root` has, on every rank.
    Broadcast {
        /// The rank that has it.
        root: usize,
    },
    /// Nothing but that all ranks have come.
    Barrier,
    /// A [`Barrier`](Self::Barrier) before a backward pass.
    Backward,
}

impl CollectiveOperation {
    /// The name of the call.
    pub fn name(&self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather { .. } => "all_gather_rows",
            Self::ReduceScatter { .. } => "reduce_scatter_rows",
            Self::AllToAll { .. } => "all_to_all_rows",
            Self::Broadcast { .. } => "broadcast",
            Self::Barrier => "barrier",
            Self::Backward => "backward",
        }
    }

    /// What brings gradients back, where the operation has any. Each is linear: this is its transpose over all ranks,
    /// for a loss that is the sum of those of the ranks.
    pub fn transposed(&self) -> Option<Self> {
        match self {
            Self::AllReduce => Some(Self::AllReduce),
            Self::AllGather { rows } => Some(Self::ReduceScatter { rows: rows.clone() }),
            Self::ReduceScatter { rows } => Some(Self::AllGather { rows: rows.clone() }),
            Self::AllToAll { send, receive } => Some(Self::AllToAll { send: receive.clone(), receive: send.clone() }),
            Self::Broadcast { .. } | Self::Barrier | Self::Backward => None,
        }
    }

    /// The shape of the result on `rank` of a tensor of `shape`.
    pub(crate) fn output(
        &self,
        rank: usize,
        ranks: usize,
        shape: &[usize],
        dtype: DType,
    ) -> Result<Vec<usize>, CollectiveFault> {
        let unless = |fits: bool, argument, expected: String, found: String| match fits {
            true => Ok(()),
            false => Err(CollectiveFault::Argument { argument, expected, found }),
        };
        let (types, whole) = match self {
            // Nothing is added up.
            Self::AllGather { .. } | Self::AllToAll { .. } => ("f32, f16, bf16 or i32", dtype == DType::I32),
            _ => ("f32, f16 or bf16", false),
        };
        let stored = whole || matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
        unless(stored, "x", types.into(), format!("{dtype:?}"))?;
        let per_rank = |argument, list: &[usize]| {
            unless(list.len() == ranks, argument, format!("a number for each of {ranks} ranks"), format!("{list:?}"))
        };
        let rows_of_x = |rows: usize| {
            let fits = shape.len() == 2 && shape[0] == rows;
            unless(fits, "x", format!("a matrix of {rows} rows"), format!("shape {shape:?}"))
        };
        match self {
            Self::AllReduce | Self::Barrier | Self::Backward => Ok(shape.to_vec()),
            Self::Broadcast { root } => {
                unless(*root < ranks, "root", format!("a rank below {ranks}"), root.to_string())?;
                Ok(shape.to_vec())
            }
            Self::AllGather { rows } => {
                per_rank("rows", rows)?;
                rows_of_x(rows[rank])?;
                Ok(vec![rows.iter().sum(), shape[1]])
            }
            Self::ReduceScatter { rows } => {
                per_rank("rows", rows)?;
                rows_of_x(rows.iter().sum())?;
                Ok(vec![rows[rank], shape[1]])
            }
            Self::AllToAll { send, receive } => {
                per_rank("send", send)?;
                per_rank("receive", receive)?;
                rows_of_x(send.iter().sum())?;
                let own = format!("as many rows for rank {rank} itself as from it, {}", send[rank]);
                unless(send[rank] == receive[rank], "receive", own, receive[rank].to_string())?;
                Ok(vec![receive.iter().sum(), shape[1]])
            }
        }
    }

    /// What of a call is the same on every rank, in words; `of` is the number of the call whose gradients it brings
    /// back.
    pub(crate) fn described(&self, of: Option<u64>, shape: &[usize], dtype: DType) -> String {
        let what = match self {
            Self::AllReduce => format!("all_reduce of {shape:?} in {dtype:?}"),
            Self::AllGather { rows } => format!("all_gather_rows {rows:?} of width {} in {dtype:?}", shape[1]),
            Self::ReduceScatter { rows } => format!("reduce_scatter_rows {rows:?} of width {} in {dtype:?}", shape[1]),
            Self::AllToAll { .. } => format!("all_to_all_rows of width {} in {dtype:?}", shape[1]),
            Self::Broadcast { root } => format!("broadcast of {shape:?} in {dtype:?} from rank {root}"),
            Self::Barrier | Self::Backward => self.name().into(),
        };
        of.map_or(what.clone(), |call| format!("{what}, backward of call {call}"))
    }

    /// Where `calls` of the ranks do not fit together: what each calls.
    pub(crate) fn disagreement(calls: &[(&Self, String)]) -> Option<CollectiveFault> {
        if calls.iter().any(|(_, said)| *said != calls[0].1) {
            return Some(CollectiveFault::Disagreement { found: calls.iter().map(|(_, said)| said.clone()).collect() });
        }
        let counts = |(call, _): &(&Self, String)| match call {
            Self::AllToAll { send, receive } => Some((send.clone(), receive.clone())),
            _ => None,
        };
        let counts: Vec<_> = calls.iter().filter_map(counts).collect();
        let fit = |(r, s): (usize, usize)| counts[r].0[s] == counts[s].1[r];
        let all = (0..counts.len()).flat_map(|r| (0..counts.len()).map(move |s| (r, s)));
        if all.into_iter().all(fit) {
            return None;
        }
        let told = |(send, receive): &(Vec<usize>, Vec<usize>)| format!("sends {send:?}, receives {receive:?}");
        Some(CollectiveFault::Disagreement { found: counts.iter().map(told).collect() })
    }
}
