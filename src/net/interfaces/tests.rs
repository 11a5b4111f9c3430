//! What made-up machines tell others, and what users let through.

use super::*;

fn interface(name: &str, nets: &[&str], kind: Kind, speed: Option<u32>) -> Interface {
    Interface {
        name: name.to_owned(),
        nets: nets.iter().map(|net| net.parse().unwrap()).collect(),
        is_up: true,
        kind,
        speed,
        is_default: false,
    }
}

fn loopback() -> Interface {
    interface("lo", &["127.0.0.1/8", "::1/128"], Kind::Loopback, None)
}

fn default(interface: Interface) -> Interface {
    Interface {
        is_default: true,
        ..interface
    }
}

fn down(interface: Interface) -> Interface {
    Interface {
        is_up: false,
        ..interface
    }
}

/// The addresses that a machine tells if nothing is asked for.
fn told(machine: &[Interface]) -> Vec<String> {
    told_with(machine, &Selection::default())
}

fn told_with(machine: &[Interface], selection: &Selection) -> Vec<String> {
    let ways = selection.ways(machine, Way::MOST).unwrap();
    ways.iter().map(|way| way.ip().to_string()).collect()
}

fn laptop() -> Vec<Interface> {
    let air = interface(
        "wlp2s0",
        &["192.168.7.20/24", "2001:db8:7::20/64", "fe80::1/64"],
        Kind::Detour,
        None,
    );
    vec![
        loopback(),
        down(interface("enp0s31f6", &["10.0.0.5/24"], Kind::Ordinary, None)),
        default(air),
        interface("docker0", &["172.17.0.1/16"], Kind::Inside, Some(10_000)),
        interface("virbr0", &["192.168.122.1/24"], Kind::Inside, None),
        interface("tun0", &["10.8.0.2/24"], Kind::Detour, Some(10)),
    ]
}

/// Four cards that are equal, the first of which has the default route.
fn four_cards() -> Vec<Interface> {
    let card = |i: u32| {
        let net = format!("10.1.{i}.7/24");
        interface(&format!("ens{i}"), &[&net], Kind::Ordinary, None)
    };
    let mut machine: Vec<Interface> = (32..36).map(card).collect();
    machine[2].is_default = true;
    machine.insert(0, loopback());
    machine.push(interface(
        "docker0",
        &["172.17.0.1/16"],
        Kind::Inside,
        Some(10_000),
    ));
    machine
}

#[test]
fn what_leads_to_others_comes_first() {
    assert_eq!(
        told(&laptop()),
        [
            "192.168.7.20",
            "10.8.0.2",
            "2001:db8:7::20",
            "172.17.0.1",
            "192.168.122.1"
        ]
    );
    assert_eq!(
        told(&four_cards()),
        ["10.1.34.7", "10.1.32.7", "10.1.33.7", "10.1.35.7", "172.17.0.1"]
    );
}

#[test]
fn fast_interfaces_come_before_slow_ones_and_unknown_ones_between() {
    let machine = [
        default(interface("mgmt", &["10.0.0.1/24"], Kind::Ordinary, Some(1_000))),
        interface("unknown", &["10.0.1.1/24"], Kind::Ordinary, None),
        interface("ib0", &["10.0.2.1/24"], Kind::Ordinary, Some(100_000)),
        interface("ib1", &["10.0.3.1/24"], Kind::Ordinary, Some(100_000)),
    ];
    assert_eq!(told(&machine), ["10.0.2.1", "10.0.3.1", "10.0.1.1", "10.0.0.1"]);
    assert_eq!(fastest(&machine), Some(100_000));
    assert_eq!(fastest(&laptop()), None);
}

#[test]
fn the_inner_end_of_a_pair_is_right_where_there_is_no_other() {
    // A pod of Kubernetes.
    let pod = [
        loopback(),
        default(interface(
            "eth0",
            &["10.244.1.17/32", "fe80::2/64"],
            Kind::Ordinary,
            Some(10_000),
        )),
    ];
    assert_eq!(told(&pod), ["10.244.1.17"]);
    // Its host, where the outer ends have addresses that lead nowhere.
    let host = [
        interface(
            "cali1",
            &["169.254.1.1/32", "fe80::3/64"],
            Kind::Ordinary,
            Some(10_000),
        ),
        interface("veth2", &["10.9.9.9/24"], Kind::Inside, Some(10_000)),
        default(interface("eth0", &["10.0.0.1/24"], Kind::Ordinary, None)),
    ];
    assert_eq!(told(&host), ["10.0.0.1", "169.254.1.1", "10.9.9.9"]);
    // A host whose card belongs to a bridge.
    let bridged = [
        interface("docker0", &["172.17.0.1/16"], Kind::Inside, None),
        default(interface("vmbr0", &["10.0.0.1/24"], Kind::Inside, None)),
    ];
    assert_eq!(told(&bridged), ["10.0.0.1", "172.17.0.1"]);
}

#[test]
fn hosts_of_one_version_of_ip_and_hosts_without_a_network() {
    let six = [
        loopback(),
        interface(
            "eth0",
            &["fe80::1/64", "2001:db8::1/64", "2001:db8::2/64"],
            Kind::Ordinary,
            None,
        ),
    ];
    assert_eq!(told(&six), ["2001:db8::1"]);
    assert_eq!(told(&[loopback()]), [""; 0]);
    assert_eq!(told(&[]), [""; 0]);
    let all_down: Vec<Interface> = four_cards().into_iter().map(down).collect();
    assert_eq!(told(&all_down), [""; 0]);
}

#[test]
fn no_more_is_told_than_fits() {
    let card = |i: u32| {
        let nets = [format!("10.0.{i}.1/24"), format!("2001:db8:{i}::1/64")];
        let nets: Vec<&str> = nets.iter().map(String::as_str).collect();
        interface(&format!("eth{i}"), &nets, Kind::Ordinary, Some(100_000))
    };
    let mut many: Vec<Interface> = (0..20).map(card).collect();
    let told = |machine: &[Interface], most| {
        let ways = ways(machine, &Selection::default(), most);
        ways.iter().map(|way| way.ip().to_string()).collect::<Vec<_>>()
    };
    // All that may be used together, each its own interface; and one for who has another version of IP.
    let first: Vec<String> = (0..9).map(|i| format!("10.0.{i}.1")).collect();
    assert_eq!(
        told(&many, Way::MOST),
        [&first[..], &["2001:db8::1".to_owned()]].concat()
    );
    assert_eq!(told(&many, 3), ["10.0.0.1", "10.0.1.1", "2001:db8::1"]);
    // The slow one by which others come from elsewhere.
    many.push(default(interface(
        "mgmt",
        &["192.0.2.1/24"],
        Kind::Ordinary,
        Some(1_000),
    )));
    assert_eq!(told(&many, 3), ["10.0.0.1", "192.0.2.1", "2001:db8::1"]);
    let all = told(&many, Way::MOST);
    assert_eq!(
        (all.len(), &all[..8], &all[8..]),
        (10, &first[..8], &told(&many, 3)[1..])
    );
    // Who has room for three only finds which.
    let are_first = ways(&many, &Selection::default(), Way::MOST)
        .into_iter()
        .filter(|way| way.is_first);
    assert_eq!(
        are_first.map(|way| way.ip().to_string()).collect::<Vec<_>>(),
        told(&many, 3)
    );
    assert_eq!([1, 0].map(|most| told(&many, most).len()), [1, 0]);
    // A bridge keeps nobody else out.
    let bridge = interface("docker0", &["fd00::1/64"], Kind::Inside, None);
    let cards: Vec<Interface> = many[..4]
        .iter()
        .map(|card| Interface {
            nets: card.nets[..1].to_vec(),
            ..card.clone()
        })
        .chain([bridge])
        .collect();
    assert_eq!(told(&cards, 3), ["10.0.0.1", "10.0.1.1", "10.0.2.1"]);
}

fn names(text: &str) -> Selection {
    Selection::new(Some(("CCL_SOCKET_IFNAME", text)), None, None).unwrap()
}

fn subnets(text: &str) -> Selection {
    Selection::new(None, Some(("CCL_SOCKET_SUBNET", text)), None).unwrap()
}

#[test]
fn names_are_chosen_as_by_nccl() {
    let machine = four_cards();
    for (text, wanted) in [
        ("ens32", &["10.1.32.7"][..]),
        (
            "ens,docker",
            &["10.1.34.7", "10.1.32.7", "10.1.33.7", "10.1.35.7", "172.17.0.1"],
        ),
        ("eth, ens33", &["10.1.33.7"]),
        ("=ens35,ens32,ens", &["10.1.32.7", "10.1.35.7"]),
        ("^docker,ens34", &["10.1.32.7", "10.1.33.7", "10.1.35.7"]),
        (
            "^=ens,ens32",
            &["10.1.34.7", "10.1.33.7", "10.1.35.7", "172.17.0.1"],
        ),
    ] {
        assert_eq!(told_with(&machine, &names(text)), wanted, "{text}");
    }
    // Ranks of one host need no network.
    assert_eq!(told_with(&machine, &names("lo")), [""; 0]);
}

/// Where hosts route, their cards have no addresses of their own.
#[test]
fn an_address_on_loopback_is_told_if_it_leads_to_others() {
    let at_home = interface("lo", &["127.0.0.1/8", "10.255.0.7/32"], Kind::Loopback, None);
    let card = interface("eth0", &["fe80::1/64"], Kind::Ordinary, Some(25_000));
    assert_eq!(told(&[at_home.clone(), card]), ["10.255.0.7"]);
    let card = interface("eth0", &["10.0.0.7/24"], Kind::Ordinary, None);
    assert_eq!(told(&[at_home, card]), ["10.0.0.7", "10.255.0.7"]);
}

#[test]
fn subnets_and_families_are_chosen() {
    let machine = four_cards();
    assert_eq!(
        told_with(&machine, &subnets("10.1.32.0/24,10.1.33.7")),
        ["10.1.32.7", "10.1.33.7"]
    );
    assert_eq!(
        told_with(&machine, &subnets("^10.1.32.0/23")),
        ["10.1.34.7", "10.1.35.7", "172.17.0.1"]
    );
    let six = Selection::new(None, None, Some(("CCL_SOCKET_FAMILY", "AF_INET6"))).unwrap();
    assert_eq!(told_with(&laptop(), &six), ["2001:db8:7::20"]);
    let four = Selection::new(None, None, Some(("CCL_SOCKET_FAMILY", "AF_INET"))).unwrap();
    assert!(told_with(&laptop(), &four).iter().all(|ip| !ip.contains(':')));
}

#[test]
fn mistakes_are_told_with_what_there_is() {
    let error = |selection: Selection| selection.ways(&laptop(), Way::MOST).unwrap_err().to_string();
    assert_eq!(
        error(names("eht0")),
        "CCL_SOCKET_IFNAME=\"eht0\" leaves no address by which other hosts could reach this one: there are lo \
         (127.0.0.1/8, ::1/128, loopback), enp0s31f6 (10.0.0.5/24, down), wlp2s0 (192.168.7.20/24, 2001:db8:7::20/64, \
         fe80::1/64, wireless or a tunnel), docker0 (172.17.0.1/16, 10 Gbit/s, of a bridge), virbr0 (192.168.122.1/24, of a \
         bridge), tun0 (10.8.0.2/24, 0.01 Gbit/s, wireless or a tunnel)"
    );
    assert!(error(names("enp")).contains("enp0s31f6 (10.0.0.5/24, down)"));
    assert!(error(subnets("10.99.0.0/16")).starts_with("CCL_SOCKET_SUBNET=\"10.99.0.0/16\" leaves"));
    for bad in ["", "^", "=", "eth0,=eth1", "a b"] {
        let error = Selection::new(Some(("interfaces", bad)), None, None).unwrap_err();
        assert!(
            error.to_string().contains("names no interfaces"),
            "{bad}: {error}"
        );
    }
    for bad in ["", "10.0.0.0/33", "10.0.0", "fd00::/129", "eth0"] {
        let error = Selection::new(None, Some(("subnets", bad)), None).unwrap_err();
        assert!(
            error.to_string().contains("is no list of subnets"),
            "{bad}: {error}"
        );
    }
    let error = Selection::new(None, None, Some(("family", "ipv4"))).unwrap_err();
    assert!(error.to_string().contains("is no version of IP"), "{error}");
}

#[test]
fn this_machine_can_be_read() {
    let here = here();
    assert!(!here.is_empty());
    for way in ways(&here, &Selection::default(), Way::MOST) {
        std::net::UdpSocket::bind((way.ip(), 0)).unwrap();
    }
}
