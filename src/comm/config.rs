//! What a user may set for a communicator.

#[cfg(feature = "cuda")]
use crate::cuda::driver::{Context, Driver};
use crate::{
    net::{Presence, Protection, Rails, Said, Way, interfaces, setting},
    plan::{algo::ALGORITHMS, choose, forced::Forced},
    sys::{self, helpers::Helpers},
    transport::{
        links::{Attach, Choice},
        plugin::Plugin,
        tcp,
    },
    types::{Error, Result},
};
use std::{env, ffi::CString, time::Duration};
#[cfg(feature = "cuda")]
use tracing::debug;

/// Settings of a communicator. Ranks must agree on `transport`, `algorithm`, `reproducible`, `encryption` and `checksum`: init
/// compares them.
///
/// ```
/// let mut config = ccl::Config::default();
/// config.timeout = Some(std::time::Duration::from_secs(10));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// How long init, and later each operation, may wait for another rank. `None`: the environment's `CCL_TIMEOUT`
    /// (seconds), else [`Config::DEFAULT_INIT_TIMEOUT`] and [`Config::DEFAULT_TIMEOUT`].
    pub timeout: Option<Duration>,
    /// A name for people: logs, `ccl-perf status`, the trace and what is kept when a communicator fails tell it beside the
    /// communicator's own, its first 64 characters. Each rank may have another.
    pub name: Option<String>,
    /// The transport: `"auto"` shares memory between ranks where that is possible and uses TCP between the others;
    /// `"shm"` and `"tcp"` force one, and so does the name of a network plugin, such as `"verbs"`. `None`: the environment's
    /// `CCL_TRANSPORT`, else `"auto"`.
    pub transport: Option<String>,
    /// The network plugin that takes TCP's place between ranks that do not share memory: NAME of `libccl_net_NAME.so`, which is
    /// looked for beside this library and where the linker looks; or a path. If it finds no device on some rank, and `transport`
    /// does not name it, all use TCP. What a plugin is, `include/ccl_net.h` says. `None`: the environment's `CCL_NET_PLUGIN`, else
    /// none.
    pub plugin: Option<String>,
    /// The algorithm for every operation that it fits, as [`crate::algorithms`] names it: `"ring"`. Or several, among which the
    /// planner chooses: `"ring,direct"`; all but some: `"^ring"`; or for each operation its own:
    /// `"allreduce:ring;broadcast:tree,chain"`. Where none of those for all operations fits one the planner chooses among all;
    /// what is listed for one operation must fit it. `None`: the environment's `CCL_ALGO`, else the planner chooses.
    pub algorithm: Option<String>,
    /// Whether the bits of a reduction depend on its inputs and the number of ranks alone: not on the count, the transport,
    /// nor on how the ranks are placed. All contributions to an element are then combined in one order, by the binary tree
    /// that splits ranks a to b at a plus the largest power of two below b − a, 16- and 8-bit floats in `f32` with one
    /// rounding at the end. It leaves the planner fewer algorithms, so that long vectors may take longer.
    pub reproducible: bool,
    /// What is done for the traffic by TCP, that of init included: `"off"`; `"authenticate"`, with which nobody on the way can
    /// alter data; `"on"`, with which nobody can read them either. The keys come of the unique id's secret. `None`: the
    /// environment's `CCL_ENCRYPTION`, else `"off"`.
    pub encryption: Option<String>,
    /// Whether all that travels by TCP carries checksums (CRC32C) of ccl's own, so that what a network card or a switch spoils is an
    /// error that names its sender, where the 16 bits of TCP's checksums do not show it. They are against accidents and not
    /// against people; with `encryption` all is verified anyway. `None`: the environment's `CCL_CHECKSUM`, `"on"` or `"off"`, else
    /// they are off.
    pub checksum: Option<bool>,
    /// The interfaces by which ranks of other hosts may come: the beginnings of their names, `"eth,ib"`; with `=` before the first
    /// all of their names, `"=eth0,eth1"`; with `^` those that are not to be used, `"^docker"`, `"^=docker0"`. `None`: the
    /// environment's `CCL_SOCKET_IFNAME`, else all but loopback's own addresses, those that lead to other hosts first, and of these the fastest.
    ///
    /// This and the next five need not be the same on all ranks.
    pub interfaces: Option<String>,
    /// The subnets by which they may come: `"10.0.0.0/8,fd00::/8"`, or with `^` those by which they may not. `None`: the
    /// environment's `CCL_SOCKET_SUBNET`, else all.
    pub subnets: Option<String>,
    /// The version of IP: `"AF_INET"` (4) or `"AF_INET6"` (6). `None`: the environment's `CCL_SOCKET_FAMILY`, else both.
    pub family: Option<String>,
    /// The ports at which this process may listen for other ranks, `"40000-40100"`. It takes one, and each process of a host
    /// another one. `None`: the environment's `CCL_PORT_RANGE`, else the system chooses.
    pub ports: Option<String>,
    /// How many interfaces are used together between two hosts, 8 at most. `None`: the environment's `CCL_RAILS`, else all that
    /// are as good as the best, 4 at most.
    pub rails: Option<usize>,
    /// The connections from this rank to another one by TCP, 8 at most. `None`: the environment's `CCL_TCP_STREAMS`, else one for
    /// each interface that is used.
    pub streams: Option<usize>,
    /// The most threads, the caller included, by which this rank copies and reduces in long calls, 64 at most. 1: it makes none for that.
    /// `None`: the environment's `CCL_THREADS`, else as many as there are cores for each rank of the host, 4 at most; so none
    /// are made where the ranks cover the cores. Results do not depend on it.
    pub threads: Option<usize>,
    /// The PCI address of the GPU that the rank works with, as sysfs has it. `None`: that of the thread that calls init.
    pub(crate) gpu: Option<CString>,
    /// The CUDA context that the rank works in. `None`: that of the thread that calls init.
    #[cfg(feature = "cuda")]
    pub(crate) context: Option<Context>,
    /// Whether it is one of the two ranks by which init measures the machine.
    pub(crate) is_probe: bool,
}

impl Config {
    /// The deadline of operations when nothing else is said.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);
    /// The deadline of init when nothing else is said.
    pub const DEFAULT_INIT_TIMEOUT: Duration = Duration::from_secs(120);
}

/// How long to wait for other ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deadlines {
    pub(super) init: Duration,
    pub(super) operations: Duration,
}

impl From<Duration> for Deadlines {
    fn from(both: Duration) -> Self {
        Deadlines {
            init: both,
            operations: both,
        }
    }
}

impl Config {
    /// The default settings, for who hands them to another thread.
    pub(crate) fn of_this_thread() -> Config {
        Config {
            gpu: gpu_here(),
            #[cfg(feature = "cuda")]
            context: context_here(),
            ..Config::default()
        }
    }

    /// The same without what this thread works with: for what is made of another communicator, which has that's.
    pub(crate) fn anywhere(mut self) -> Config {
        self.gpu = None;
        #[cfg(feature = "cuda")]
        {
            self.context = None;
        }
        self
    }

    /// Fills in the context that is this thread's current one, where none is given.
    pub(super) fn here(&mut self) {
        #[cfg(feature = "cuda")]
        {
            self.context = self.context.or_else(context_here);
        }
    }

    /// The number of the device of its context, if it has one.
    #[cfg(feature = "cuda")]
    pub(super) fn device(&self) -> Option<i32> {
        let driver = Driver::in_use()?.ok()?;
        let device = driver.device_of(self.context?);
        device
            .inspect_err(|why| debug!("init: the number of the device is not known: {why}"))
            .ok()
    }

    #[cfg(not(feature = "cuda"))]
    pub(super) fn device(&self) -> Option<i32> {
        None
    }

    /// Checks the settings, fills in what the environment says, and returns the deadlines.
    pub(super) fn check(&mut self) -> Result<Deadlines> {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let either = |text, variable| given(text).or_else(|| sys::environment::text(variable));
        self.transport = given(self.transport.take());
        let transport_by_env = self.transport.is_none();
        // Which code is loaded the program says there, and not who started it.
        let names_one = self.plugin.as_deref().is_some_and(|name| !name.is_empty());
        let is_told = names_one || !sys::library::has_others_rights();
        self.transport = either(self.transport.take(), "CCL_TRANSPORT");
        if transport_by_env && !is_told && self.choice() == Choice::Plugin {
            self.transport = None;
        }
        self.algorithm = given(self.algorithm.take());
        let algorithm_by_env = self.algorithm.is_none();
        self.algorithm = either(self.algorithm.take(), "CCL_ALGO");
        self.plugin = match sys::library::has_others_rights() {
            true => given(self.plugin.take()),
            false => either(self.plugin.take(), "CCL_NET_PLUGIN"),
        };
        self.encryption = either(self.encryption.take(), "CCL_ENCRYPTION");
        if self.checksum.is_none() {
            self.checksum = match env::var("CCL_CHECKSUM").as_deref() {
                Err(env::VarError::NotPresent) | Ok("") => None,
                Ok("on") => Some(true),
                Ok("off") => Some(false),
                other => {
                    return Err(Error::usage(format!(
                        "CCL_CHECKSUM={:?} does not exist: use \"on\" or \"off\"",
                        other.unwrap_or("(not UTF-8)")
                    )));
                }
            };
        }
        self.check_transport()
            .map_err(|error| naming("CCL_TRANSPORT", transport_by_env, error))?;
        let is_protected = self.protection()? != Protection::Off;
        if let (Some(plugin), true) = (self.wanted_plugin(), is_protected) {
            return Err(Error::usage(format!(
                "encryption and checksums are for TCP, and not for what goes by the plugin {plugin:?}: use one of them"
            )));
        }
        if self.gpu.is_none() && self.wanted_plugin().is_some() {
            self.gpu = gpu_here();
        }
        self.tcp()?;
        self.rails()?;
        let selection = self.presence()?.selection;
        if selection.is_given() {
            selection.ways(&interfaces::here(), Way::MOST)?;
        }
        self.attach()?;
        self.threads()?;
        self.direct()?;
        self.explains()?;
        sys::tcp::set_limit(heartbeat(env::var("CCL_HEARTBEAT"))?);
        let forced = self
            .forced()
            .map_err(|error| naming("CCL_ALGO", algorithm_by_env, error))?;
        if let Some(names) = forced.out_of_order().filter(|_| self.reproducible) {
            let able = ALGORITHMS.iter().filter(|one| (one.in_order)(2, false));
            let able: Vec<&str> = able.map(|one| one.name).collect();
            return Err(choose::out_of_order(&names, &able));
        }
        if let Some(timeout) = self.timeout {
            return Ok(timeout.into());
        }
        match sys::environment::text("CCL_TIMEOUT") {
            Some(text) => parse_seconds(&text).map(Deadlines::from),
            None => Ok(Deadlines {
                init: Config::DEFAULT_INIT_TIMEOUT,
                operations: Config::DEFAULT_TIMEOUT,
            }),
        }
    }

    /// The algorithms that are asked for.
    pub(super) fn forced(&self) -> Result<Forced> {
        let text = self.algorithm.as_deref().unwrap_or_default();
        Forced::parse(text).map_err(Error::usage)
    }

    /// Whether rank 0 tells of each new plan, as the environment says.
    ///
    /// # Errors
    /// [`Error::Usage`] for another word.
    pub(super) fn explains(&self) -> Result<bool> {
        match sys::environment::text("CCL_EXPLAIN").as_deref() {
            None | Some("0" | "off") => Ok(false),
            Some("1" | "on") => Ok(!self.is_probe),
            Some(other) => Err(Error::usage(format!(
                "CCL_EXPLAIN={other:?} does not exist: use \"1\" or \"0\""
            ))),
        }
    }

    /// The transports that links may use.
    pub(super) fn choice(&self) -> Choice {
        match self.transport.as_deref() {
            None | Some("auto") => Choice::Auto,
            Some("shm") => Choice::Shm,
            Some("tcp") => Choice::Tcp,
            Some(_) => Choice::Plugin,
        }
    }

    /// Checks that there is such a transport.
    pub(crate) fn check_transport(&self) -> Result<()> {
        let (Choice::Plugin, Some(name)) = (self.choice(), self.transport.as_deref()) else {
            return Ok(());
        };
        // A path is none: of what a transport names nothing else is loaded.
        let is_plugin = || match Plugin::may_be_called(name) {
            true => Plugin::load(self.plugin.as_deref().unwrap_or(name)),
            false => Err(format!("{name:?} is no name of a plugin")),
        };
        let found = is_plugin().and_then(|found| match found.name() == name {
            true => Ok(()),
            false => Err(format!("CCL_NET_PLUGIN is the plugin {:?}", found.name())),
        });
        found.map_err(|why| {
            Error::usage(format!(
                "transport {name:?} does not exist: use \"auto\", \"shm\", \"tcp\" or the name of a plugin ({why})"
            ))
        })
    }

    /// The plugin that links may use, if any.
    fn wanted_plugin(&self) -> Option<&str> {
        match self.choice() {
            Choice::Auto => self.plugin.as_deref(),
            Choice::Plugin => self.plugin.as_deref().or(self.transport.as_deref()),
            _ => None,
        }
    }

    /// The same, loaded, or why it cannot be.
    pub(super) fn load_plugin(&self) -> Option<std::result::Result<Plugin, String>> {
        self.wanted_plugin().map(Plugin::load)
    }

    /// What is done for the traffic by TCP.
    pub(super) fn protection(&self) -> Result<Protection> {
        match self.encryption.as_deref() {
            None | Some("off") if self.checksum == Some(true) => Ok(Protection::Check),
            None | Some("off") => Ok(Protection::Off),
            Some("authenticate") => Ok(Protection::Authenticate),
            Some("on") => Ok(Protection::Encrypt),
            Some(other) => Err(Error::usage(format!(
                "encryption {other:?} does not exist: use \"off\", \"authenticate\" or \"on\" (CCL_ENCRYPTION)"
            ))),
        }
    }

    /// By which interfaces and ports this rank may be reached.
    pub(super) fn presence(&self) -> Result<Presence> {
        Presence::new(Said {
            interfaces: self.interfaces.as_deref(),
            subnets: self.subnets.as_deref(),
            family: self.family.as_deref(),
            ports: self.ports.as_deref(),
        })
    }

    /// How many interfaces are used together between two hosts, if that is said.
    pub(super) fn rails(&self) -> Result<Option<usize>> {
        number("rails", self.rails, "CCL_RAILS", Rails::MOST, "interfaces")
    }

    /// How TCP links are made.
    pub(super) fn tcp(&self) -> Result<tcp::Settings> {
        let most = tcp::MAX_STREAMS;
        Ok(tcp::Settings {
            streams: number("streams", self.streams, "CCL_TCP_STREAMS", most, "connections")?,
            congestion: self.congestion()?,
            lends: one_of(
                "CCL_TCP_SPLICE",
                "auto",
                [
                    ("auto", tcp::Lends::Auto),
                    ("on", tcp::Lends::On),
                    ("off", tcp::Lends::Off),
                ],
            )?,
        })
    }

    fn congestion(&self) -> Result<Option<String>> {
        let Some(name) = sys::environment::text("CCL_TCP_CONGESTION") else {
            return Ok(None);
        };
        match sys::tcp::try_congestion(&name) {
            Ok(()) => Ok(Some(name)),
            Err(e) => Err(Error::usage(format!(
                "CCL_TCP_CONGESTION={name:?} cannot be used ({}): /proc/sys/net/ipv4/tcp_allowed_congestion_control names \
                 what can",
                std::io::Error::from(e)
            ))),
        }
    }

    /// Whether long messages may be read straight from their sender's memory, as the environment says.
    pub(super) fn attach(&self) -> Result<Attach> {
        one_of(
            "CCL_CMA",
            "auto",
            [
                ("auto", Attach::Auto),
                ("on", Attach::On),
                ("off", Attach::Off),
                ("any", Attach::Any),
            ],
        )
    }

    /// The most threads that copy and reduce, as the configuration says, else the environment.
    pub(super) fn threads(&self) -> Result<Option<usize>> {
        number("threads", self.threads, "CCL_THREADS", Helpers::MOST, "threads")
    }

    /// Whether ranks read each other's long messages where they lie, as the environment says.
    pub(super) fn direct(&self) -> Result<Direct> {
        one_of(
            "CCL_DIRECT",
            "auto",
            [("auto", Direct::Auto), ("on", Direct::On), ("off", Direct::Off)],
        )
    }

    /// Whether operations on device memory may go by windows, as the environment says.
    #[cfg(feature = "cuda")]
    pub(super) fn cuda_direct(&self) -> Result<bool> {
        one_of("CCL_CUDA_DIRECT", "off", [("on", true), ("off", false)])
    }

    /// What the ranks must have in common.
    pub(super) fn knobs(&self) -> Vec<(String, String)> {
        let knob = |name: &str, value: &Option<String>| {
            (name.to_owned(), value.clone().unwrap_or("auto".to_owned()))
        };
        vec![
            knob("transport", &self.transport),
            knob("algorithm", &self.algorithm),
            ("reproducible".to_owned(), self.reproducible.to_string()),
            ("CCL_DIRECT".to_owned(), direct_text()),
            (
                "CCL_CUDA_DIRECT".to_owned(),
                switch_text("CCL_CUDA_DIRECT", "off"),
            ),
            (
                "CCL_ENCRYPTION".to_owned(),
                self.encryption.clone().unwrap_or("off".to_owned()),
            ),
            (
                "CCL_CHECKSUM".to_owned(),
                // With encryption it changes nothing.
                match self.protection() {
                    Ok(Protection::Check) => "on".to_owned(),
                    _ => "off".to_owned(),
                },
            ),
        ]
    }
}

/// Whether ranks read each other's long messages where they lie. Calls are planned by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direct {
    /// Where they can. Plans count on it where all ranks are threads of one process.
    Auto,
    /// Where they can, and plans count on it wherever ranks share memory.
    On,
    Off,
}

/// The PCI address of the GPU whose context is this thread's current one, if the program works with such a one.
#[cfg(feature = "cuda")]
fn gpu_here() -> Option<CString> {
    let driver = Driver::in_use()?.map_err(str::to_owned);
    let found = driver.and_then(|driver| driver.current_gpu().map_err(|error| error.to_string()));
    found.unwrap_or_else(|why| {
        debug!("init: which GPU this thread works with is not known: {why}");
        None
    })
}

/// The context that is this thread's current one, if it has one.
#[cfg(feature = "cuda")]
fn context_here() -> Option<Context> {
    Driver::in_use()?.ok()?.current().ok()?
}

#[cfg(not(feature = "cuda"))]
fn gpu_here() -> Option<CString> {
    None
}

/// A wrong setting, with the variable's name where it came `by_env`.
fn naming(variable: &str, by_env: bool, error: Error) -> Error {
    match error {
        Error::Usage { what } if by_env => Error::usage(format!("{variable}: {what}")),
        other => other,
    }
}

/// A number of `what` from 1 to `most`, as a program says, else the environment.
fn number(
    field: &'static str,
    said: Option<usize>,
    variable: &'static str,
    most: usize,
    what: &str,
) -> Result<Option<usize>> {
    let said = said.map(|number| number.to_string());
    let Some((name, text)) = setting(field, said.as_deref(), variable)? else {
        return Ok(None);
    };
    let number = text.trim().parse().ok().filter(|n| (1..=most).contains(n));
    number
        .map(Some)
        .ok_or_else(|| Error::usage(format!("{name}={text:?} is no number of {what} from 1 to {most}")))
}

/// Seconds until a host that has vanished is given up: a matter of the process, whose connections are made before it is known
/// for which communicator, and not of a [`Config`].
fn heartbeat(text: std::result::Result<String, env::VarError>) -> Result<u32> {
    use sys::tcp::{DEFAULT_LIMIT, LEAST_LIMIT, MOST_LIMIT};
    let text = match text {
        Err(env::VarError::NotPresent) => return Ok(DEFAULT_LIMIT),
        Ok(text) if text.is_empty() => return Ok(DEFAULT_LIMIT),
        Ok(text) => text,
        Err(env::VarError::NotUnicode(_)) => "(not UTF-8)".to_owned(),
    };
    let seconds = text.trim().parse().ok();
    seconds
        .filter(|s| (LEAST_LIMIT..=MOST_LIMIT).contains(s))
        .ok_or_else(|| {
            Error::usage(format!(
                "CCL_HEARTBEAT={text:?} is no number of whole seconds from {LEAST_LIMIT} to {MOST_LIMIT}"
            ))
        })
}

fn direct_text() -> String {
    switch_text("CCL_DIRECT", "auto")
}

/// What a variable says, or what it says where it is not set.
fn switch_text(name: &str, unset: &str) -> String {
    match env::var(name) {
        Err(env::VarError::NotPresent) => unset.to_owned(),
        Ok(text) if text.is_empty() => unset.to_owned(),
        Ok(text) => text,
        Err(env::VarError::NotUnicode(_)) => "(not UTF-8)".to_owned(),
    }
}

/// Which of these a variable names, or what is meant where it is not set.
fn one_of<T, const N: usize>(name: &str, unset: &str, choices: [(&str, T); N]) -> Result<T> {
    let text = switch_text(name, unset);
    let words = choices.each_ref().map(|(word, _)| format!("{word:?}"));
    match choices.into_iter().find(|(word, _)| *word == text) {
        Some((_, chosen)) => Ok(chosen),
        None => {
            let (last, others) = words.split_last().expect("there is something to choose from");
            let others = others.join(", ");
            Err(Error::usage(format!(
                "{name}={text:?} does not exist: use {others} or {last}"
            )))
        }
    }
}

fn parse_seconds(text: &str) -> Result<Duration> {
    let seconds = text.trim().parse().ok().filter(|&s: &f64| s > 0.0);
    seconds
        .and_then(|s| Duration::try_from_secs_f64(s).ok())
        .ok_or_else(|| {
            Error::usage(format!(
                "CCL_TIMEOUT={text:?} is no number of seconds above 0, such as 30 or 0.5"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked() {
        let checked = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.check().map_err(|error| error.to_string())
        };
        assert_eq!(
            checked(|c| c.timeout = Some(Duration::from_secs(1))),
            Ok(Duration::from_secs(1).into())
        );
        let error = checked(|c| c.transport = Some("ib".into())).unwrap_err();
        assert!(
            error.starts_with(
                "transport \"ib\" does not exist: use \"auto\", \"shm\", \"tcp\" or the name of a plugin (libccl_net_ib.so: \
                 it cannot be loaded: "
            ),
            "{error}"
        );
        let error = checked(|c| c.transport = Some("/tmp/libccl_net_ib.so".into())).unwrap_err();
        assert!(
            error.ends_with("(\"/tmp/libccl_net_ib.so\" is no name of a plugin)"),
            "{error}"
        );
        let error =
            checked(|c| (c.plugin, c.encryption) = (Some("ib".into()), Some("on".into()))).unwrap_err();
        assert!(
            error.contains("not for what goes by the plugin \"ib\""),
            "{error}"
        );
        for (threads, is_right) in [(0, false), (1, true), (64, true), (65, false)] {
            let config = Config {
                threads: Some(threads),
                timeout: Some(Duration::from_secs(1)),
                ..Config::default()
            };
            let error = format!("threads=\"{threads}\" is no number of threads from 1 to 64");
            let checked = config.clone().check().map_err(|error| error.to_string());
            assert_eq!(checked.err(), (!is_right).then_some(error));
        }
        let error = checked(|c| c.algorithm = Some("rings".into())).unwrap_err();
        assert_eq!(
            error,
            "algorithm \"rings\" does not exist: use one of doubling, oneshot, direct, pairwise, ring, halving, bruck, pat, tree, knomial, chain, doubletree, hierarchical, hierarchical-ring"
        );
    }

    #[test]
    fn reproducible_leaves_the_algorithms_of_one_order() {
        let of = |name: &str| {
            let mut config = Config {
                reproducible: true,
                algorithm: Some(name.into()),
                ..Config::default()
            };
            config
                .check()
                .map(|_| config.knobs())
                .map_err(|error| error.to_string())
        };
        let error = of("chain").unwrap_err();
        assert!(
            error
                .contains("\"chain\" combines them in another: force none, or doubling or oneshot or direct"),
            "{error}"
        );
        // It never combines anything.
        assert!(of("bruck").is_ok());
        let knobs = of("direct").unwrap();
        assert!(knobs.contains(&("reproducible".into(), "true".into())));
    }

    #[test]
    fn heartbeats_are_whole_seconds() {
        let of = |text: &str| heartbeat(Ok(text.to_owned())).map_err(|error| error.to_string());
        assert_eq!(heartbeat(Err(env::VarError::NotPresent)).ok(), Some(10));
        assert_eq!(
            [of(""), of("5"), of(" 60 "), of("3600")],
            [10, 5, 60, 3600].map(Ok)
        );
        for bad in ["4", "0", "-1", "7.5", "soon", "3601"] {
            let wanted = format!("CCL_HEARTBEAT={bad:?} is no number of whole seconds from 5 to 3600");
            assert_eq!(of(bad), Err(wanted));
        }
    }

    #[test]
    fn seconds_are_above_zero() {
        assert_eq!(parse_seconds("0.5").unwrap(), Duration::from_millis(500));
        for bad in ["", "0", "-1", "nan", "inf", "soon", "1e300"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }
}
