//! Compares the emitted program with the policy's own answers, over every number, architecture and argument.

use super::{
    interpreter::{self, Call},
    policy::{ARCH_X86_64, Policy, X32_BIT},
    rule::{Case, Rule, Test, Verdict},
    table::Group,
    tree,
};
use nix::errno::Errno;
use seccompiler::sock_filter;
use std::collections::BTreeSet;

const ARCH_I386: u32 = 0x4000_0003;
/// The neighbours of our own, ARM's, PowerPC's, and what no machine has.
const FOREIGN_ARCHES: [u32; 7] =
    [ARCH_I386, ARCH_X86_64 - 1, ARCH_X86_64 + 1, 0xc000_00b7, 0xc000_0015, 0, u32::MAX];
/// Highest number that is tried one by one.
const NUMBERS: u32 = 1023;
/// What a caller may leave in the half of an argument that the kernel does not read.
const UPPER_HALVES: [u64; 4] = [0, 1 << 32, 0x8000_0000 << 32, 0xffff_ffff << 32];

/// Numbers without an order, the same in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn arguments(&mut self) -> [u64; 6] {
        std::array::from_fn(|_| self.next())
    }
}

fn tests_of(rule: &Rule) -> Vec<Test> {
    match rule {
        Rule::Always(_) => Vec::new(),
        Rule::Cases { cases, .. } => cases.iter().flat_map(|case| case.tests).copied().collect(),
    }
}

/// Values of one argument between which a rule makes a difference, and their neighbours.
fn edges(tests: &[Test], argument: u8) -> BTreeSet<u32> {
    let mut edges = BTreeSet::from([0, 1, u32::MAX]);
    for test in tests.iter().filter(|test| test.argument() == argument) {
        let (mask, values) = match test {
            Test::Among { mask, values, .. } => (*mask, values.to_vec()),
            Test::AnyBit { mask, .. } => (*mask, vec![*mask]),
            Test::Pointer { .. } => continue,
        };
        edges.extend([mask, !mask, mask.wrapping_add(1), mask.wrapping_sub(1)]);
        for value in values {
            edges.extend([value, value.wrapping_sub(1), value.wrapping_add(1), value | !mask]);
        }
    }
    edges
}

/// Every combination of one value an argument.
fn combinations(choices: &[(u8, Vec<u32>)]) -> Vec<Vec<(u8, u32)>> {
    choices.iter().fold(vec![Vec::new()], |before, (argument, values)| {
        let with = |known: &Vec<_>, value| [known.clone(), vec![(*argument, value)]].concat();
        before.iter().flat_map(|known| values.iter().map(move |value| with(known, *value))).collect()
    })
}

/// Argument lists that a rule has to tell apart; what it does not look at is noise.
fn argument_cases(rule: &Rule, noise: &mut Noise) -> Vec<[u64; 6]> {
    let tests = tests_of(rule);
    let tested: BTreeSet<u8> = tests.iter().map(Test::argument).collect();
    let choices: Vec<_> = tested.iter().map(|a| (*a, edges(&tests, *a).into_iter().collect())).collect();
    let mut chosen = combinations(&choices);
    // Each bit alone, with every value that the rule names for the other arguments.
    for argument in &tested {
        let named =
            |a: &u8| if a == argument { (0..32).map(|b| 1 << b).collect() } else { named(&tests, *a) };
        let choices: Vec<_> = tested.iter().map(|a| (*a, named(a))).collect();
        chosen.extend(combinations(&choices));
    }
    let mut cases = vec![[0; 6], [u64::MAX; 6], noise.arguments(), noise.arguments()];
    for upper in UPPER_HALVES {
        for values in &chosen {
            let mut arguments = noise.arguments();
            for (argument, value) in values {
                arguments[usize::from(*argument)] = upper | u64::from(*value);
            }
            cases.push(arguments);
        }
    }
    cases
}

fn named(tests: &[Test], argument: u8) -> Vec<u32> {
    let of = |test: &Test| match test {
        Test::Among { values, .. } => values.to_vec(),
        Test::AnyBit { mask, .. } => vec![*mask],
        Test::Pointer { .. } => vec![0, 1],
    };
    tests.iter().filter(|test| test.argument() == argument).flat_map(of).collect()
}

/// Calls and what the program has to answer.
fn expectations(policy: &Policy) -> Vec<(Call, u32)> {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let mut calls = Vec::new();
    let bases = [0, X32_BIT, X32_BIT << 1, X32_BIT * 3];
    let ends = bases.map(|base| base.wrapping_sub(1));
    for number in (0..=NUMBERS).chain(ends).chain(bases) {
        // Also what makes a difference to its neighbours, whose rule it could have been given.
        for near in [number.wrapping_sub(1), number, number.wrapping_add(1)] {
            let rule = policy.row(near).map_or(Rule::Always(Verdict::Allow), |row| row.rule);
            let cases = argument_cases(&rule, &mut noise);
            calls.extend(cases.into_iter().map(|arguments| (ARCH_X86_64, number, arguments)));
        }
        for base in bases {
            calls.push((ARCH_X86_64, number | base, noise.arguments()));
            calls.extend(FOREIGN_ARCHES.map(|arch| (arch, number | base, noise.arguments())));
        }
    }
    let mut order = Noise(7);
    let expect = |(arch, number, arguments)| {
        let call = Call { number, arch, pointer: noise.next(), arguments };
        (call, tree::answer(policy.verdict(arch, number, &arguments)))
    };
    let mut expected: Vec<_> = calls.into_iter().map(expect).collect();
    // In no order, so that a wrong program is found out early wherever it is wrong.
    expected.sort_by_cached_key(|_| order.next());
    expected
}

fn first_difference<'a>(program: &[sock_filter], expected: &'a [(Call, u32)]) -> Option<&'a (Call, u32)> {
    expected.iter().find(|(call, answer)| interpreter::run(program, call) != Some(*answer))
}

/// What the kernel asks of a program, and that nothing in it is idle.
fn assert_well_formed(program: &[sock_filter]) {
    assert!(program.len() <= tree::LENGTH_MAX);
    let mut reached = vec![false; program.len()];
    reached[0] = true;
    for at in 0..program.len() {
        assert!(reached[at], "instruction {at} is never reached");
        for next in interpreter::successors(program, at) {
            reached[next] = true;
        }
        let instruction = &program[at];
        if instruction.code == tree::RETURN {
            let errno = instruction.k & 0xffff;
            match instruction.k & 0xffff_0000 {
                libc::SECCOMP_RET_ALLOW | libc::SECCOMP_RET_KILL_PROCESS => assert_eq!(errno, 0),
                libc::SECCOMP_RET_ERRNO => assert!((0..=133).contains(&errno)),
                other => panic!("answer {other:#x} is neither yes nor no"),
            }
        }
    }
}

#[test]
fn the_program_answers_as_the_table_does() {
    let policy = Policy::command().unwrap();
    let program = tree::compile(&policy).unwrap();
    assert_well_formed(&program);
    let expected = expectations(&policy);
    let difference = first_difference(&program, &expected);
    assert!(difference.is_none(), "{difference:x?}");
    // What the documentation says; the longest way is that of an option prctl does not have.
    let (instructions, comparisons) = interpreter::longest(&program);
    assert!(program.len() <= 264, "{} instructions", program.len());
    assert!(instructions <= 64 && comparisons <= 48, "longest way {instructions}, {comparisons} comparisons");
}

#[test]
fn finding_a_number_takes_few_comparisons() {
    let policy = Policy::command().unwrap();
    let program = tree::compile(&policy).unwrap();
    let ranges = policy.ranges().len();
    let plain = policy.ranges().iter().filter(|range| matches!(range.rule, Rule::Always(_))).count();
    assert!(plain > ranges / 2, "argument rules should be the exception");
    for number in 0..=NUMBERS {
        let call = Call { number, arch: ARCH_X86_64, pointer: 0, arguments: [0; 6] };
        let constant = policy.row(number).is_none_or(|row| matches!(row.rule, Rule::Always(_)));
        let steps = interpreter::steps(&program, &call).unwrap();
        // Two loads, the architecture, the bisection, the answer, and a jump where one was too far.
        let most = 5 + usize::try_from(ranges.next_power_of_two().ilog2()).unwrap();
        assert!(!constant || steps <= most, "{number}: {steps} instructions, {most} expected");
    }
}

#[test]
fn every_change_of_the_program_is_noticed() {
    let policy = Policy::command().unwrap();
    let program = tree::compile(&policy).unwrap();
    let expected = expectations(&policy);
    let mut survivors = Vec::new();
    for at in 0..program.len() {
        let original = &program[at];
        let changed = |change: fn(&mut sock_filter)| {
            let mut instruction = original.clone();
            change(&mut instruction);
            instruction
        };
        let changes = [
            changed(|i| i.k = i.k.wrapping_add(1)),
            changed(|i| i.k = i.k.wrapping_sub(1)),
            changed(|i| std::mem::swap(&mut i.jt, &mut i.jf)),
        ];
        for change in changes.into_iter().filter(|change| change != original) {
            let mut mutant = program.clone();
            mutant[at] = change;
            if first_difference(&mutant, &expected).is_none() {
                survivors.push((at, mutant[at].clone(), original.clone()));
            }
        }
    }
    assert!(survivors.is_empty(), "{} changes make no difference: {survivors:x?}", survivors.len());
}

#[test]
fn an_allow_list_lets_nothing_else_pass() {
    let calls = [(libc::SYS_read, "reads"), (libc::SYS_write, "writes"), (libc::SYS_prctl, "asks")];
    let policy = Policy::allow_list(&calls).unwrap();
    let program = super::allow_list(&calls).unwrap();
    assert_well_formed(&program);
    assert!(first_difference(&program, &expectations(&policy)).is_none());
    let verdict = |number| policy.verdict(ARCH_X86_64, number, &[0; 6]);
    assert_eq!((verdict(0), verdict(1)), (Verdict::Allow, Verdict::Allow));
    assert_eq!((verdict(2), verdict(9999)), (Verdict::Errno(Errno::EPERM), Verdict::Errno(Errno::EPERM)));
    assert_eq!(policy.row(157).unwrap().name, "prctl");
    assert!(Policy::allow_list(&[(libc::SYS_read, " ")]).is_err());
    assert!(Policy::allow_list(&[(libc::SYS_read, "a"), (libc::SYS_read, "b")]).is_err());
    assert!(Policy::allow_list(&[(-1, "a")]).is_err() && Policy::allow_list(&[(400, "a")]).is_err());
}

#[test]
fn a_program_too_large_for_short_jumps_answers_rightly() {
    // Every number has another rule than its neighbours, so that no range is merged and jumps get long.
    const FIRST: &[Case] =
        &[Case { tests: &[Test::AnyBit { argument: 1, mask: 6 }], verdict: Verdict::KillProcess }];
    const SECOND: &[Case] = &[Case { tests: &[Test::among(2, &[3, 9])], verdict: Verdict::Allow }];
    let group = |number: u32| {
        let errnos = [Errno::EPERM, Errno::ENOSYS, Errno::EINVAL];
        let otherwise = Verdict::Errno(errnos[usize::try_from(number % 3).unwrap()]);
        let cases = if number.is_multiple_of(2) { FIRST } else { SECOND };
        Group {
            reason: "test",
            rule: Rule::Cases { cases, otherwise },
            calls: Box::leak(Box::new([(i64::from(number), "test")])),
        }
    };
    let groups: Vec<_> = (0..600).map(group).collect();
    let policy = Policy::from_groups(&groups, Verdict::Allow).unwrap();
    let program = tree::compile(&policy).unwrap();
    assert_well_formed(&program);
    assert!(program.iter().any(|i| i.code == tree::JUMP && i.k > 255), "no long jump in it");
    let difference =
        expectations(&policy).into_iter().find(|(c, a)| interpreter::run(&program, c) != Some(*a));
    assert!(difference.is_none(), "{difference:x?}");
    let many: Vec<_> = (0..5000).map(group).collect();
    let error = tree::compile(&Policy::from_groups(&many, Verdict::Allow).unwrap()).unwrap_err();
    assert!(error.to_string().contains("and the kernel takes 4096"), "{error}");
}
