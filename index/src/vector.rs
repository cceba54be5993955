//! Which passages mean what the query means? The nearest unit vectors by cosine.
//!
//! Small indexes are searched exactly: a scan of [`EXACT_PASSAGES_MAX`] vectors takes about as long as a graph search
//! that misses nothing, and cannot miss. Larger ones use an HNSW graph, read from disk as it was built.

use crate::IndexError;
use crate::arm::{ArmError, Found, TopRows};
use budgets::{Clock, Deadline};
use hnsw_rs::prelude::{AnnT, Distance, Hnsw, HnswIo, Point};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// Up to this many passages the search is exact.
pub(crate) const EXACT_PASSAGES_MAX: usize = 4_096;
/// Vectors between two looks at the clock.
const VECTORS_PER_CHECK: usize = 512;
/// Edges of a point; twice as many on the lowest layer. Up to 48 suit high dimensions (Malkov and Yashunin 2018, 4.1).
const EDGES: usize = 24;
const LAYERS_MAX: usize = 16;
/// Candidates that are kept while a point is inserted.
const INSERT_CANDIDATES: usize = 200;
/// Fewest candidates that are kept during a search; more raise recall and time alike.
const SEARCH_CANDIDATES_MIN: usize = 192;
/// Name of the graph's files, before the endings that the library gives them.
pub(crate) const GRAPH: &str = "graph";

/// One minus the cosine of two unit vectors. Rounding can push it below zero, which the graph does not expect.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnitCosine;

impl Distance<f32> for UnitCosine {
    fn eval(&self, a: &[f32], b: &[f32]) -> f32 {
        (1.0 - dot(a, b)).max(0.0)
    }
}

/// Dot product in eight lanes, which the compiler turns into vector instructions.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 8;
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f32 = a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(x, y)| x * y).sum();
    let mut lanes = [0.0f32; LANES];
    for (x, y) in a_chunks.zip(b_chunks) {
        for lane in 0..LANES {
            lanes[lane] += x[lane] * y[lane];
        }
    }
    lanes.iter().sum::<f32>() + rest
}

/// Vectors of a generation, ready for search.
pub(crate) enum Vectors {
    /// All vectors behind one another.
    Exact { dimensions: usize, values: Vec<f32> },
    /// A graph over them, and its points by row.
    Graph { graph: Box<Hnsw<'static, f32, UnitCosine>>, points: Vec<Arc<Point<'static, f32>>> },
}

/// Builds the graph over `values` and writes it into `dir`.
pub(crate) fn write_graph(dir: &Path, dimensions: usize, values: &[f32]) -> Result<(), IndexError> {
    let points: Vec<(&[f32], usize)> = values.chunks_exact(dimensions).zip(0..).collect();
    let build = || {
        let graph =
            Hnsw::<f32, UnitCosine>::new(EDGES, points.len(), LAYERS_MAX, INSERT_CANDIDATES, UnitCosine);
        graph.parallel_insert_slice(&points);
        graph.file_dump(dir, GRAPH)
    };
    match catch_unwind(AssertUnwindSafe(build)) {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(IndexError::Vector(error.to_string())),
        Err(_) => Err(IndexError::Vector("the graph could not be built".into())),
    }
}

impl Vectors {
    /// Reads the graph that [`write_graph`] wrote; its files must have been checked.
    pub(crate) fn open_graph(dir: &Path) -> Result<Vectors, IndexError> {
        // The library ties a graph to the life of its reader, for the case that vectors stay mapped in the file. Here
        // they do not; so the reader, some hundred bytes, is left behind once per opened generation.
        let load = || {
            let reader: &'static mut HnswIo = Box::leak(Box::new(HnswIo::new(dir, GRAPH)));
            reader.load_hnsw::<f32, UnitCosine>()
        };
        match catch_unwind(AssertUnwindSafe(load)) {
            Ok(Ok(graph)) => {
                let mut points: Vec<Arc<Point<'static, f32>>> =
                    graph.get_point_indexation().into_iter().collect();
                points.sort_unstable_by_key(|point| point.get_origin_id());
                Ok(Vectors::Graph { graph: Box::new(graph), points })
            }
            Ok(Err(error)) => Err(IndexError::Vector(error.to_string())),
            Err(_) => Err(IndexError::Vector("the graph could not be read".into())),
        }
    }

    /// The `depth` nearest passages, nearest first, with their cosines; of an exact search also the nearest of those that
    /// were compared before the deadline.
    pub(crate) fn search(
        &self,
        query: &[f32],
        depth: usize,
        deadline: Deadline,
        clock: &dyn Clock,
    ) -> Result<Found, ArmError> {
        if deadline.expired(clock.now()) {
            return Err(ArmError::Expired);
        }
        let mut top = TopRows::new(depth);
        match self {
            Vectors::Exact { dimensions, values } => {
                let count = values.len() / dimensions;
                for (row, vector) in values.chunks_exact(*dimensions).enumerate() {
                    if row > 0 && row % VECTORS_PER_CHECK == 0 && deadline.expired(clock.now()) {
                        return Ok(Found { ranked: top.into_ranked(), share: row as f32 / count as f32 });
                    }
                    top.offer(row, dot(query, vector));
                }
            }
            // The library cannot be stopped; it looks at some thousand points, which takes about a millisecond.
            Vectors::Graph { graph, .. } => {
                let neighbours = graph.search(query, depth, SEARCH_CANDIDATES_MIN.max(2 * depth));
                neighbours.iter().for_each(|near| top.offer(near.d_id, 1.0 - near.distance));
            }
        }
        Ok(Found { ranked: top.into_ranked(), share: 1.0 })
    }

    /// The cosine of a query and one passage.
    pub(crate) fn cosine(&self, query: &[f32], row: usize) -> Option<f32> {
        match self {
            Vectors::Exact { dimensions, values } => {
                values.get(row * dimensions..(row + 1) * dimensions).map(|vector| dot(query, vector))
            }
            // Rows are the points' own numbers, without gaps; a graph that lost some must not lend another's vector.
            Vectors::Graph { points, .. } => {
                let point = points.get(row).filter(|point| point.get_origin_id() == row)?;
                Some(dot(query, point.get_v()))
            }
        }
    }
}
