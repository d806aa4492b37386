//! `graphsieve serve`: scores of a live graph over HTTP.
