//! Sampling and collecting on CubeCL devices.

use std::ops::Range;

use burn::tensor::DType;
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::args::{
    AskedColumnsArgs, BatchNodesArgs, ColumnEntriesArgs, DrawnArgs, DrawnEntriesArgs, KeptEntriesArgs, LayerArgs,
    ListedEntriesArgs, ListedNodesArgs, LongPlaceArgs, LongRowsArgs, NamedColumnsArgs, NewSourcesArgs, PackedFromArgs,
    PlacedSourcesArgs, PlaneDrawsArgs, RankedEntriesArgs, RankedRowsArgs, RelationRowsArgs, RelationsArgs,
    RowColumnsArgs, ScatteredEntriesArgs, SourcesArgs, SpanTableArgs, SpanTableLaunch, WordRangeArgs, WordsBehindArgs,
    WordsBehindLaunch,
};
use super::kernel::{
    ask_kernel, column_count_kernel, count_kernel, draw_kernel, first_kernel, forget_kernel, keep_kernel, list_kernel,
    long_kernel, name_kernel, order_kernel, pack_kernel, scatter_kernel, seed_kernel, source_kernel, start_kernel,
    value_kernel,
};
use super::plane_draw::plane_draw_kernel;
use crate::graph::csr::LONG_ROW;
use crate::runtime::args::{ExtentArgs, MatrixArgs, array};
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{PlanePerRow, Rows, address, empty, flat, has_doubles, part, vector_width, zeros};
use crate::runtime::prims::Prefix;
use crate::runtime::prims::kernel::Counted;
use crate::runtime::prims::launch::prefix_sum;
use crate::sampling::backend::{CollectStep, LayerParts, LayerStep, SampleBackend, Source, Spans, ValueStep, Words};
use crate::sampling::collect::kernel::{
    CollectedFromArgs, LocatedArgs, RowBoundsArgs, RowPlacesArgs, collect_kernel, locate_kernel,
};

fn reach<R: CubeRuntime>(words: &Words<CubeTensor<R>>) -> AddressType {
    match words.pinned {
        true => AddressType::U64,
        false => address(&[&words.anchor]),
    }
}

fn words_behind<R: CubeRuntime>(words: &Words<CubeTensor<R>>) -> WordsBehindLaunch<R> {
    WordsBehindArgs { words: array(&words.anchor), delta: words.delta }.launch()
}

fn span_table<R: CubeRuntime>(spans: &Spans<CubeTensor<R>>) -> SpanTableLaunch<R> {
    SpanTableArgs { table: array(&spans.table), types: spans.types as u32, rows: spans.rows }.launch()
}

impl_for_devices! { SampleBackend =>
    const SAMPLES: bool = true;

    fn has_doubles(device: &Self::Device) -> bool {
        has_doubles(&R::client(device))
    }

    fn sample_layer(step: LayerStep<IntTensor<Self>>) -> LayerParts<IntTensor<Self>> {
        let LayerStep { row_ptr, col_idx, weights, plane_room, table, rows, kinds, drops, nodes, places, .. } = step;
        let count = step.relations as u32;
        let relations = || RelationsArgs { table: array(&table), count }.launch();
        let layer = || LayerArgs { relations: relations(), nodes: array(&nodes), rows }.launch();
        let client = nodes.client.clone();
        let words = |len: usize| empty(&nodes, [len], DType::I32);
        let (per_row, row_dim) = flat(rows + 1);
        let row_counts = words(rows + 1);
        // SAFETY: the loops end at the rows, which are nodes of their types; a relation has a row pointer for each of
        // them.
        unsafe {
            count_kernel::launch_unchecked::<R>(
                &client,
                per_row.clone(),
                row_dim,
                reach(&row_ptr),
                layer(),
                words_behind(&row_ptr),
                array(&row_counts),
                kinds,
            );
        }
        let starts = prefix_sum(&row_counts, Counted::Value, Prefix::Exclusive);
        // As many as there are: how many, only the device knows.
        let len = step.most.unwrap_or_else(|| total(&starts, rows)).max(1);
        let (edges, cols, flags, owners) = (words(len), words(len), words(len + 1), words(len));
        let (per_entry, entry_dim) = flat(len + 1);
        let narrow = address(&[&cols, &places, &nodes]);
        let drawn = || DrawnArgs { edges: array(&edges), owners: array(&owners) }.launch();
        // SAFETY: a row has as many entries as its start and the next one are apart, and `len` is not below their sum;
        // rows that planes draw some entries of give no more than their room.
        unsafe {
            draw_kernel::launch_unchecked::<R>(
                &client,
                per_row.clone(),
                row_dim,
                reach(&row_ptr),
                layer(),
                words_behind(&row_ptr),
                array(&starts),
                drawn(),
                kinds,
            );
            if let Some(room) = plane_room {
                let geometry = PlanePerRow::alone(&client);
                // What is not read still needs a buffer.
                let sums = weights.as_ref().and_then(|of| of.sums.as_ref()).unwrap_or(&row_ptr);
                let (weights, doubles) =
                    weights.as_ref().map_or((&row_ptr, &table), |weights| (&weights.words, &weights.doubles));
                let far = [&row_ptr, &col_idx, weights, sums].map(reach).into_iter().max();
                plane_draw_kernel::launch_unchecked::<R>(
                    &client,
                    geometry.count(rows),
                    geometry.dim,
                    far.unwrap_or(narrow),
                    layer(),
                    PlaneDrawsArgs {
                        starts: array(&starts),
                        row_ptr: words_behind(&row_ptr),
                        col_idx: words_behind(&col_idx),
                        weights: words_behind(weights),
                        sums: words_behind(sums),
                        doubles: array(doubles),
                    }
                    .launch(),
                    drawn(),
                    kinds,
                    room,
                );
            }
            source_kernel::launch_unchecked::<R>(
                &client,
                per_entry.clone(),
                entry_dim,
                reach(&col_idx).max(narrow),
                layer(),
                words_behind(&col_idx),
                DrawnEntriesArgs { starts: array(&starts), edges: array(&edges), owners: array(&owners) }.launch(),
                SourcesArgs { cols: array(&cols), flags: array(&flags), places: array(&places) }.launch(),
                len,
                drops,
            );
        }
        let (starts, edges, cols, owners) = if drops {
            let ranks = prefix_sum(&flags, Counted::Value, Prefix::Exclusive);
            let (kept_starts, kept_edges) = (words(rows + 1), words(len));
            let (kept_cols, kept_owners) = (words(len), words(len));
            // SAFETY: the ranks are those of the flags of all entries; starts of rows are among them.
            unsafe {
                keep_kernel::launch_unchecked::<R>(
                    &client,
                    per_entry.clone(),
                    entry_dim,
                    narrow,
                    RankedEntriesArgs {
                        ranks: array(&ranks),
                        edges: array(&edges),
                        cols: array(&cols),
                        owners: array(&owners),
                    }
                    .launch(),
                    KeptEntriesArgs { edges: array(&kept_edges), cols: array(&kept_cols), owners: array(&kept_owners) }
                        .launch(),
                    len,
                );
                start_kernel::launch_unchecked::<R>(
                    &client,
                    per_row.clone(),
                    row_dim,
                    narrow,
                    RankedRowsArgs { ranks: array(&ranks), starts: array(&starts) }.launch(),
                    array(&kept_starts),
                    rows,
                );
                ask_kernel::launch_unchecked::<R>(
                    &client,
                    per_entry.clone(),
                    entry_dim,
                    narrow,
                    RowColumnsArgs { starts: array(&kept_starts), cols: array(&kept_cols), rows }.launch(),
                    array(&places),
                );
            }
            (kept_starts, kept_edges, kept_cols, kept_owners)
        } else {
            (starts, edges, cols, owners)
        };
        // SAFETY: places are there for every node, and the loop ends at the length of the flags.
        unsafe {
            first_kernel::launch_unchecked::<R>(
                &client,
                per_entry.clone(),
                entry_dim,
                narrow,
                AskedColumnsArgs {
                    columns: RowColumnsArgs { starts: array(&starts), cols: array(&cols), rows }.launch(),
                    places: array(&places),
                }
                .launch(),
                array(&flags),
                len,
            );
        }
        let ranks = prefix_sum(&flags, Counted::Value, Prefix::Exclusive);
        let counts = words(2 * step.relations);
        // SAFETY: a node is listed once, so there is room for all of them.
        unsafe {
            list_kernel::launch_unchecked::<R>(
                &client,
                per_entry.clone(),
                entry_dim,
                narrow,
                relations(),
                NewSourcesArgs { starts: array(&starts), cols: array(&cols), ranks: array(&ranks) }.launch(),
                ListedNodesArgs { places: array(&places), nodes: array(&nodes) }.launch(),
                len,
            );
            name_kernel::launch_unchecked::<R>(
                &client,
                per_entry,
                entry_dim,
                narrow,
                relations(),
                PlacedSourcesArgs { places: array(&places), starts: array(&starts), ranks: array(&ranks) }.launch(),
                NamedColumnsArgs { cols: array(&cols), counts: array(&counts) }.launch(),
                rows,
            );
        }
        LayerParts { starts, cols, edges, owners, counts, len }
    }

    fn reverse_layer(
        step: &LayerStep<IntTensor<Self>>,
        parts: &LayerParts<IntTensor<Self>>,
        columns: usize,
    ) -> [IntTensor<Self>; 2] {
        let LayerParts { starts, cols, owners, len, .. } = parts;
        let (client, rows) = (&cols.client, step.rows);
        let relations = || RelationsArgs { table: array(&step.table), count: step.relations as u32 }.launch();
        let columns_of_rows = || RowColumnsArgs { starts: array(starts), cols: array(cols), rows }.launch();
        let counts = zeros(cols, [columns + 1], DType::I32);
        let taken = zeros(cols, [columns + 1], DType::I32);
        let (entries, destinations) = (empty(cols, [*len], DType::I32), empty(cols, [*len], DType::I32));
        let (count, dim) = flat(*len);
        let width = address(&[cols, &counts]);
        // SAFETY: columns of the entries are below the number of columns, and an entry has a place of its own.
        unsafe {
            column_count_kernel::launch_unchecked::<R>(
                client,
                count.clone(),
                dim,
                width,
                relations(),
                columns_of_rows(),
                array(&counts),
            );
            let col_starts = prefix_sum(&counts, Counted::Value, Prefix::Exclusive);
            scatter_kernel::launch_unchecked::<R>(
                client,
                count.clone(),
                dim,
                width,
                relations(),
                columns_of_rows(),
                array(&col_starts),
                ScatteredEntriesArgs { taken: array(&taken), entries: array(&entries) }.launch(),
            );
            order_kernel::launch_unchecked::<R>(
                client,
                count,
                dim,
                width,
                relations(),
                columns_of_rows(),
                ColumnEntriesArgs { owners: array(owners), starts: array(&col_starts), entries: array(&entries) }
                    .launch(),
                array(&destinations),
            );
            [col_starts, destinations]
        }
    }

    fn list_long_rows(
        starts: &IntTensor<Self>,
        rows: Range<usize>,
        list: &IntTensor<Self>,
        behind: usize,
        counts: &IntTensor<Self>,
        count: usize,
    ) {
        let (cubes, dim) = flat(rows.len());
        // SAFETY: there are starts for one row more, and room for all long rows that so many entries can make.
        unsafe {
            long_kernel::launch_unchecked::<R>(
                &list.client,
                cubes,
                dim,
                address(&[starts, list]),
                RelationRowsArgs { starts: array(starts), first: rows.start, count: rows.len() }.launch(),
                LongRowsArgs { list: array(list), counts: array(counts) }.launch(),
                LongPlaceArgs { longest: LONG_ROW as u32, behind, count }.launch(),
            );
        }
    }

    fn place_seeds(
        spans: &Spans<IntTensor<Self>>,
        seeds: IntTensor<Self>,
        nodes: &IntTensor<Self>,
        places: &IntTensor<Self>,
    ) {
        let (cubes, dim) = flat(spans.rows);
        // SAFETY: seeds are nodes of their types, and there is room for them.
        unsafe {
            seed_kernel::launch_unchecked::<R>(
                &places.client,
                cubes,
                dim,
                address(&[places, nodes]),
                span_table(spans),
                array(&seeds),
                ListedNodesArgs { places: array(places), nodes: array(nodes) }.launch(),
            );
        }
    }

    fn forget_places(spans: &Spans<IntTensor<Self>>, nodes: &IntTensor<Self>, places: &IntTensor<Self>) {
        let (cubes, dim) = flat(spans.rows);
        // SAFETY: the listed nodes exist.
        unsafe {
            forget_kernel::launch_unchecked::<R>(
                &places.client,
                cubes,
                dim,
                address(&[places, nodes]),
                BatchNodesArgs { spans: span_table(spans), nodes: array(nodes) }.launch(),
                array(places),
            );
        }
    }

    fn pack_words(
        from: [&IntTensor<Self>; 4],
        stretches: IntTensor<Self>,
        count: usize,
        to: &IntTensor<Self>,
        range: Range<usize>,
    ) {
        let (cubes, dim) = flat(range.len());
        let [a, b, c, d] = from.map(array);
        // SAFETY: the caller's stretches are inside of the arrays and of the range.
        unsafe {
            pack_kernel::launch_unchecked::<R>(
                &to.client,
                cubes,
                dim,
                address(&[from[0], from[1], from[2], from[3], to]),
                PackedFromArgs { stretches: array(&stretches), a, b, c, d, count: count as u32 }.launch(),
                array(to),
                WordRangeArgs { start: range.start, end: range.end }.launch(),
            );
        }
    }

    fn gather_values(
        values: &Words<IntTensor<Self>>,
        edges: &IntTensor<Self>,
        step: ValueStep,
        to: &IntTensor<Self>,
    ) {
        let ValueStep { first, len, width, start } = step;
        let (cubes, dim) = flat(len * width);
        // SAFETY: entries are among those of the relation, which have `width` values each, and there is room for them.
        unsafe {
            value_kernel::launch_unchecked::<R>(
                &to.client,
                cubes,
                dim,
                reach(values).max(address(&[edges, to])),
                ListedEntriesArgs { edges: array(edges), first, len }.launch(),
                words_behind(values),
                array(to),
                start,
                width,
            );
        }
    }

    fn copy_words(words: &IntTensor<Self>) -> IntTensor<Self> {
        words.copy()
    }

    fn words_at(words: &IntTensor<Self>, start: usize, len: usize) -> IntTensor<Self> {
        part(words, start, len)
    }

    fn floats_at(words: &IntTensor<Self>, start: usize, [rows, width]: [usize; 2]) -> FloatTensor<Self> {
        let CubeTensor { client, device, handle, .. } = part(words, start, rows * width);
        CubeTensor::new_contiguous(client, device, [rows, width].into(), handle, DType::F32)
    }

    fn copy_rows(rows: &FloatTensor<Self>) -> FloatTensor<Self> {
        rows.copy()
    }

    fn collect_rows(step: CollectStep<FloatTensor<Self>, IntTensor<Self>>) -> FloatTensor<Self> {
        let CollectStep { spans, nodes, before, cache, source, width, dtype, tally } = step;
        let client = nodes.client.clone();
        let out = Rows::of(empty(&nodes, [spans.rows, width], dtype));
        // An argument that the kernel does not read still needs a buffer.
        let unread = || Rows::of(empty(&nodes, [1, width], dtype));
        let window = before.is_some();
        let cached = cache.is_some();
        let (places, before) =
            before.map_or_else(|| (nodes.clone(), unread()), |(places, rows)| (places, Rows::of(rows)));
        let (index, cache) = cache.map_or_else(|| (nodes.clone(), unread()), |(index, rows)| (index, Rows::of(rows)));
        let first_cached = if window { before.num_rows as u32 } else { 0 };
        let first_source = first_cached + if cached { cache.num_rows as u32 } else { 0 };
        let from = empty(&nodes, [spans.rows], DType::I32);
        let geometry = PlanePerRow::of(&client);
        // SAFETY: the loop ends at the rows; every node has its place in the tables.
        unsafe {
            locate_kernel::launch_unchecked::<R>(
                &client,
                geometry.count(spans.rows.div_ceil(geometry.plane as usize)),
                geometry.dim,
                address(&[&places, &index, &nodes]),
                BatchNodesArgs { spans: span_table(&spans), nodes: array(&nodes) }.launch(),
                RowPlacesArgs { before: array(&places), cached: array(&index) }.launch(),
                LocatedArgs { from: array(&from), tally: array(&tally) }.launch(),
                RowBoundsArgs { first_cached, first_source }.launch(),
                window,
                cached,
            );
        }
        let matrix = match &source {
            Source::Matrix(rows) => Some(Rows::of(rows.clone())),
            Source::Behind { .. } => None,
        };
        let mut all = vec![&out, &before, &cache];
        all.extend(&matrix);
        let v = vector_width(width, &all);
        let (anchor, delta, stride, reached) = match (source, &matrix) {
            (_, Some(rows)) => (rows.arg(), 0, rows.stride, address(&[&rows.tensor, &out.tensor, &before.tensor])),
            // Distances are multiples of 16 bytes, and wrap around below the anchor.
            (Source::Behind { anchor, delta }, None) => {
                (anchor.into_array_arg(), ((delta as i64) / v as i64) as usize, width, AddressType::U64)
            }
            (Source::Matrix(_), None) => unreachable!("a matrix was taken above"),
        };
        let vectors = width / v;
        let (count, dim) = flat(spans.rows * vectors);
        // SAFETY: rows were located just now; what lies behind an anchor is kept by its owner, and kernels of this
        // device read it.
        unsafe {
            collect_kernel::launch_unchecked::<R>(
                &client,
                count,
                dim,
                reached,
                v,
                CollectedFromArgs {
                    from: array(&from),
                    before: before.matrix(v),
                    cached: cache.matrix(v),
                    source: MatrixArgs { values: anchor, stride: stride / v }.launch(),
                    delta,
                }
                .launch(),
                out.matrix(v),
                ExtentArgs { rows: spans.rows, vectors }.launch(),
                RowBoundsArgs { first_cached, first_source }.launch(),
                dtype.into(),
            );
        }
        out.tensor
    }
}

/// The number behind the starts of the rows; 0 of a device that has failed, which the next read reports.
fn total<R: CubeRuntime>(starts: &CubeTensor<R>, rows: usize) -> usize {
    let Ok(bytes) = starts.client.read_one(starts.handle.clone()) else { return 0 };
    let words: &[u32] = bytemuck::cast_slice(&bytes);
    words[rows] as usize
}
