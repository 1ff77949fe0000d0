//! What a namespace prescribes for its items.

/// Where items are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// In memory, until the process ends.
    #[default]
    Cache,
    /// In memory, and over a restart.
    Warm,
    /// On disk; memory holds copies.
    Store,
}

impl Keep {
    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Warm => "warm",
            Self::Store => "store",
        }
    }

    pub(crate) const ALL: [Self; 3] = [Self::Cache, Self::Warm, Self::Store];
}

/// When a change is on disk, of what is kept there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Before its reply.
    #[default]
    Sync,
    /// Within an interval after it.
    Interval,
    /// When the system writes it.
    Os,
}

impl Durability {
    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Interval => "interval",
            Self::Os => "os",
        }
    }

    pub(crate) const ALL: [Self; 3] = [Self::Sync, Self::Interval, Self::Os];
}

/// Which master runs commands that read before they write (add, cas, incr, ...), of what is replicated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rmw {
    /// The one that receives them.
    #[default]
    Local,
    /// The home of the key.
    HomeMaster,
}

impl Rmw {
    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::HomeMaster => "home",
        }
    }

    pub(crate) const ALL: [Self; 2] = [Self::Local, Self::HomeMaster];
}

/// What a cache tells the other sites of changes of its items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Told {
    /// Nothing.
    #[default]
    Nothing,
    /// That items were deleted, marked stale or flushed.
    Invalidations,
    /// The same, and the values that are stored.
    Values,
}

/// Who may use a namespace, of clients that have logged in. `None`: all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    /// Who may read.
    pub read: Option<Vec<String>>,
    /// Who may write.
    pub write: Option<Vec<String>>,
}

impl Users {
    /// True if some client that has logged in may not do everything.
    pub fn are_limited(&self) -> bool {
        self.read.is_some() || self.write.is_some()
    }

    /// May this user read? `None`: a client without a name, whom only a namespace without a list lets in.
    pub fn may_read(&self, user: Option<&[u8]>) -> bool {
        is_listed(self.read.as_deref(), user)
    }

    /// May this user write?
    pub fn may_write(&self, user: Option<&[u8]>) -> bool {
        is_listed(self.write.as_deref(), user)
    }
}

fn is_listed(list: Option<&[String]>, user: Option<&[u8]>) -> bool {
    list.is_none_or(|list| user.is_some_and(|user| list.iter().any(|listed| listed.as_bytes() == user)))
}

/// The policy of a namespace. `None`: as the whole server has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Where its items are kept.
    pub keep: Keep,
    /// When they are on disk; with [`Keep::Store`] alone.
    pub durability: Option<Durability>,
    /// Quota of memory; `None`: a share of what the quotas leave.
    pub memory_bytes: Option<u64>,
    /// Quota of disk; with [`Keep::Store`] alone.
    pub disk_bytes: Option<u64>,
    /// How long an item lives that is stored without an expiry.
    pub ttl_default_secs: Option<u32>,
    /// How long an item may live.
    pub ttl_max_secs: Option<u32>,
    /// The largest item, by memcached's formula.
    pub item_bytes_max: Option<u32>,
    /// Clients may not change its items.
    pub is_read_only: bool,
    /// Who may read and write.
    pub users: Users,
    /// Changes go to other sites; `None`: as those of other stores of this server.
    pub is_replicated: Option<bool>,
    /// What other sites are told of a cache; not with [`Keep::Store`].
    pub told: Told,
    /// Which server runs read-modify-write commands; with replication alone.
    pub rmw: Option<Rmw>,
    /// The number of the home site, 1 to 255; with [`Rmw::HomeMaster`] alone.
    pub home: Option<u8>,
}
