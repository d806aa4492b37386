//! Words by which kernels know the relations and the types of a batch.

/// Of a relation in one layer.
pub(crate) mod relation {
    /// Where its rows begin among those of all relations, and how many there are.
    pub(crate) const FIRST_ROW: u32 = 0;
    pub(crate) const ROWS: u32 = 1;
    /// Where the nodes of the destinations' type are listed, and those of the sources'.
    pub(crate) const DST_LIST: u32 = 2;
    pub(crate) const SRC_LIST: u32 = 3;
    /// The first source among all nodes.
    pub(crate) const SRC_BASE: u32 = 4;
    pub(crate) const SRC_TYPE: u32 = 5;
    /// Nodes of the sources' type that are listed before the layer.
    pub(crate) const SRC_KNOWN: u32 = 6;
    /// Where its row pointers and its entries begin among those of all relations.
    pub(crate) const ROW_PTR: u32 = 7;
    pub(crate) const COL_IDX: u32 = 8;
    /// Most entries of a row; 0 for all.
    pub(crate) const FANOUT: u32 = 9;
    pub(crate) const KEY_HIGH: u32 = 10;
    pub(crate) const KEY_LOW: u32 = 11;
    /// Of DropEdge; a threshold of 0 drops nothing.
    pub(crate) const DROP_KEY0: u32 = 12;
    pub(crate) const DROP_KEY1: u32 = 13;
    pub(crate) const DROP_THRESHOLD: u32 = 14;
    pub(crate) const DROP_ROW_BASE: u32 = 15;
    pub(crate) const DROP_COL_BASE: u32 = 16;
    /// Where its columns begin among those of all relations; known once the layer is sampled.
    pub(crate) const FIRST_COL: u32 = 17;
    /// How far behind the start of a row its end stands.
    pub(crate) const ENDS: u32 = 18;
    /// Not 0 where the last entries of a row are taken.
    pub(crate) const LATEST: u32 = 19;
    /// Not 0 where a plane draws for a row, else a thread does.
    pub(crate) const BY_PLANE: u32 = 20;
    /// Not 0 where entries have weights; where these begin among those of all relations, and where the numbers of
    /// entries with a positive one do among row pointers.
    pub(crate) const WEIGHTED: u32 = 21;
    pub(crate) const WEIGHTS: u32 = 22;
    pub(crate) const AVAILABLE: u32 = 23;
    /// Words of a relation.
    pub(crate) const WORDS: u32 = 24;
}

/// Of a node type in a batch.
pub(crate) mod span {
    /// Where its rows begin among those of all types, and how many there are.
    pub(crate) const FIRST: u32 = 0;
    pub(crate) const ROWS: u32 = 1;
    /// Where its nodes are listed.
    pub(crate) const LIST: u32 = 2;
    /// Its first node among all nodes.
    pub(crate) const BASE: u32 = 3;
    /// Where its rows began in the batch before.
    pub(crate) const BEFORE: u32 = 4;
    /// Words of a type.
    pub(crate) const WORDS: u32 = 5;
}
