//! Floor 5: which physical limit bound a run, how sure that is, and what to change. Pure: facts in,
//! verdicts out.

pub mod advice;
pub mod book;
pub mod ceilings;
pub mod confidence;
pub mod doubt;
pub mod effective;
pub mod facts;
pub mod families;
pub mod from_link;
pub mod from_osd;
pub mod from_outcome;
pub mod learn;
pub mod limits;
pub mod load;
pub mod set;
