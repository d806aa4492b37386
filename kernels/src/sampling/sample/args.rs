//! What the kernels of sampling are given.

use cubecl::prelude::*;

use crate::runtime::args::launch_args;

launch_args! {
    /// Words of [`relation`](super::table::relation) for each of the relations of a layer.
    Relations, RelationsArgs {
        table: Array<u32>,
        count: u32,
    }
}

launch_args! {
    /// The rows of all relations, and the nodes of the batch, type by type.
    Layer, LayerArgs {
        relations: Relations,
        nodes: Array<u32>,
        rows: usize,
    }
}

launch_args! {
    /// Words that lie `delta` words behind an array.
    WordsBehind, WordsBehindArgs {
        words: Array<u32>,
        delta: usize,
    }
}

launch_args! {
    /// What planes draw from: where the entries of rows begin among those that are drawn; rows, sources, weights and
    /// sums of weights of all relations, and the words of [`doubles`](super::doubles).
    PlaneDraws, PlaneDrawsArgs {
        starts: Array<u32>,
        row_ptr: WordsBehind,
        col_idx: WordsBehind,
        weights: WordsBehind,
        sums: WordsBehind,
        doubles: Array<u32>,
    }
}

launch_args! {
    /// The edges that were drawn, and their rows.
    Drawn, DrawnArgs {
        edges: Array<u32>,
        owners: Array<u32>,
    }
}

launch_args! {
    /// Where the entries of rows begin, their edges, and their rows.
    DrawnEntries, DrawnEntriesArgs {
        starts: Array<u32>,
        edges: Array<u32>,
        owners: Array<u32>,
    }
}

launch_args! {
    /// Sources among all nodes, which entries are kept, and the places of nodes.
    Sources, SourcesArgs {
        cols: Array<u32>,
        flags: Array<u32>,
        places: Array<Atomic<u32>>,
    }
}

launch_args! {
    /// Entries, and how many are kept before each.
    RankedEntries, RankedEntriesArgs {
        ranks: Array<u32>,
        edges: Array<u32>,
        cols: Array<u32>,
        owners: Array<u32>,
    }
}

launch_args! {
    /// The entries that are kept.
    KeptEntries, KeptEntriesArgs {
        edges: Array<u32>,
        cols: Array<u32>,
        owners: Array<u32>,
    }
}

launch_args! {
    /// How many entries are kept before each, and where rows begin among all entries.
    RankedRows, RankedRowsArgs {
        ranks: Array<u32>,
        starts: Array<u32>,
    }
}

launch_args! {
    /// Where the rows begin among the entries, and the columns of these.
    RowColumns, RowColumnsArgs {
        starts: Array<u32>,
        cols: Array<u32>,
        rows: usize,
    }
}

launch_args! {
    /// Entries, and the places that they asked for.
    AskedColumns, AskedColumnsArgs {
        columns: RowColumns,
        places: Array<u32>,
    }
}

launch_args! {
    /// Where rows begin, the sources of entries, and how many of these are new before each.
    NewSources, NewSourcesArgs {
        starts: Array<u32>,
        cols: Array<u32>,
        ranks: Array<u32>,
    }
}

launch_args! {
    /// The nodes of the batch, and the place of every node.
    ListedNodes, ListedNodesArgs {
        places: Array<u32>,
        nodes: Array<u32>,
    }
}

launch_args! {
    /// The place of every node, where rows begin, and how many sources are new before each entry.
    PlacedSources, PlacedSourcesArgs {
        places: Array<u32>,
        starts: Array<u32>,
        ranks: Array<u32>,
    }
}

launch_args! {
    /// Columns of the entries, and for every relation its new nodes and its entries.
    NamedColumns, NamedColumnsArgs {
        cols: Array<u32>,
        counts: Array<u32>,
    }
}

launch_args! {
    /// Words of [`span`](super::table::span) for each type, and the rows of all.
    SpanTable, SpanTableArgs {
        table: Array<u32>,
        types: u32,
        rows: usize,
    }
}

launch_args! {
    /// The nodes of a batch, type by type.
    BatchNodes, BatchNodesArgs {
        spans: SpanTable,
        nodes: Array<u32>,
    }
}

launch_args! {
    /// How many entries of a column have a place, and the entries.
    ScatteredEntries, ScatteredEntriesArgs {
        taken: Array<Atomic<u32>>,
        entries: Array<u32>,
    }
}

launch_args! {
    /// The rows of all entries, where columns begin, and the entries of these.
    ColumnEntries, ColumnEntriesArgs {
        owners: Array<u32>,
        starts: Array<u32>,
        entries: Array<u32>,
    }
}

launch_args! {
    /// The rows of one relation.
    RelationRows, RelationRowsArgs {
        starts: Array<u32>,
        first: usize,
        count: usize,
    }
}

launch_args! {
    /// The list of long rows, and how many there are.
    LongRows, LongRowsArgs {
        list: Array<u32>,
        counts: Array<Atomic<u32>>,
    }
}

launch_args! {
    /// The most entries of a row that is not long, where the list begins, and which count is that of the relation.
    LongPlace, LongPlaceArgs {
        longest: u32,
        behind: usize,
        count: usize,
    }
}

launch_args! {
    /// Stretches, and the arrays that they are copied from.
    PackedFrom, PackedFromArgs {
        stretches: Array<u32>,
        a: Array<u32>,
        b: Array<u32>,
        c: Array<u32>,
        d: Array<u32>,
        count: u32,
    }
}

launch_args! {
    /// A list of entries, and which of them are read.
    ListedEntries, ListedEntriesArgs {
        edges: Array<u32>,
        first: usize,
        len: usize,
    }
}

launch_args! {
    /// The words that are written.
    WordRange, WordRangeArgs {
        start: usize,
        end: usize,
    }
}
