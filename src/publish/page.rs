//! x
pub(super) fn render(_s: &crate::model::snapshot::Snapshot, _: bool) -> String {
    String::new()
}
