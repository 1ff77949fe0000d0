//! What a backup consists of.

/// The files of a backup. Sealed segments never change, so a later backup copies only those that this one has not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// All files that make up the state, whether this backup copied them or an earlier one has them.
    pub files: Vec<BackupFile>,
    /// Up to which sequence number the state goes.
    pub last_sequence: u64,
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupFile {
    /// Its name in the store's directory.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// CRC32C of its bytes.
    pub checksum: u32,
}
