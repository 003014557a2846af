//! Times and calendars of CF: dates, and counts of a unit since a date.
//!
//! A time is a number of nanoseconds since 1970-01-01 UTC, without a limit. The days of a model calendar do not match
//! real days, so there a time counts from the calendar's own 1970-01-01. In CF's standard calendar, reference dates
//! before 1582-10-15 are Julian.

use std::borrow::Cow;
use std::ops::Range;

/// A calendar of the CF conventions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calendar {
    /// The Gregorian calendar, extended to all years before its introduction.
    Gregorian,
    /// A calendar with a leap day every fourth year.
    Julian,
    /// A calendar in which every year has 365 days.
    NoLeap,
    /// A calendar in which every year has 366 days.
    AllLeap,
    /// A calendar in which every month has 30 days.
    Days360,
}

impl Calendar {
    /// Returns the number of a date's day, counted from a fixed day of the calendar.
    pub(crate) fn days(self, year: i64, month: i64, day: i64) -> i64 {
        if self == Calendar::Days360 {
            return year * 360 + (month - 1) * 30 + day - 1;
        }
        // Years start in March here, so that a leap day is the last day of its year.
        let year = if month <= 2 { year - 1 } else { year };
        let in_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
        let leap_days = match self {
            Calendar::Julian => year.div_euclid(4) - 2,
            Calendar::AllLeap => year,
            Calendar::NoLeap | Calendar::Days360 => 0,
            Calendar::Gregorian => year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400),
        };
        year * 365 + leap_days + in_year - 719_468
    }

    /// Converts a day number of the calendar back to year, month and day.
    pub(crate) fn date(self, days: i64) -> (i64, i64, i64) {
        if self == Calendar::Days360 {
            let within = days.rem_euclid(360);
            return (days.div_euclid(360), within / 30 + 1, within % 30 + 1);
        }
        // The year and day are counted from the last March 1 on or before the date.
        let since = days + 719_468;
        let mut year = since.div_euclid(365).min(since.div_euclid(366)) - 1;
        while self.days(year + 1, 3, 1) <= days {
            year += (days - self.days(year + 1, 3, 1)) / 366 + 1;
        }
        let in_year = days - self.days(year, 3, 1);
        let month = (5 * in_year + 2) / 153;
        let day = in_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        (year + i64::from(month <= 2), month, day)
    }
}

pub(crate) const SECOND: i128 = 1_000_000_000;
const DAY: i128 = 86_400 * SECOND;

/// The parsed `units` and `calendar` of numbers that count a unit since a reference date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeCount {
    /// Length of the unit in nanoseconds.
    pub unit: i64,
    /// The reference date, in nanoseconds since 1970-01-01.
    pub origin: i128,
    /// The calendar of the reference date and of the times.
    pub calendar: Calendar,
    /// Whether xarray decodes the times to whole microseconds, because numpy and pandas do not know the name of the
    /// unit or do not support the reference date.
    pub is_in_microseconds: bool,
}

impl TimeCount {
    /// Parses units such as `days since 2000-01-01 12:00`, and the name of a calendar. Returns `None` if one of the two
    /// is invalid.
    pub fn parse(units: &str, calendar: &str) -> Option<TimeCount> {
        let (unit, date) = units.split_once(" since ")?;
        let date = CalendarDate::parse(&with_hyphens(date.trim()))?;
        let day = (date.year, date.month, date.day);
        let is_early = day < (1582, 10, 15);
        let is_skipped = is_early && day > (1582, 10, 4);
        let (calendar, of_date) = match calendar.to_ascii_lowercase().as_str() {
            "standard" | "gregorian" if is_skipped => return None,
            "standard" | "gregorian" if is_early => (Calendar::Gregorian, Calendar::Julian),
            "standard" | "gregorian" | "proleptic_gregorian" => {
                (Calendar::Gregorian, Calendar::Gregorian)
            }
            "julian" => (Calendar::Julian, Calendar::Julian),
            "noleap" | "365_day" => (Calendar::NoLeap, Calendar::NoLeap),
            "all_leap" | "366_day" => (Calendar::AllLeap, Calendar::AllLeap),
            "360_day" => (Calendar::Days360, Calendar::Days360),
            _ => return None,
        };
        // The Julian calendar has no year 0, so such a reference date is invalid.
        if of_date == Calendar::Julian && date.year == 0 {
            return None;
        }
        let (unit, origin) = (unit.trim(), date.in_calendar(of_date)?.start(of_date));
        let is_supported = of_date == Calendar::Gregorian && i64::try_from(origin).is_ok();
        Some(TimeCount {
            unit: unit_of(unit)?,
            origin,
            calendar,
            is_in_microseconds: !(is_supported && has_long_name(unit)),
        })
    }
}

/// Returns a reference date with hyphens, if it is written with slashes or without separators and its year has four
/// digits. Other dates are returned unchanged.
fn with_hyphens(date: &str) -> Cow<'_, str> {
    let length = date.find([' ', 'T']).unwrap_or(date.len());
    let (day, time) = date.split_at(length);
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = match (day.len(), day.split_once('/')) {
        (8, _) if is_number(day) => vec![&day[..4], &day[4..6], &day[6..]],
        (_, Some((year, _))) if year.len() == 4 => day.split('/').collect(),
        _ => return Cow::Borrowed(date),
    };
    Cow::Owned(parts.join("-") + time)
}

/// Whether a unit of time is written as a long name, in the singular or the plural.
fn has_long_name(unit: &str) -> bool {
    let unit = unit.to_ascii_lowercase();
    unit.ends_with("second") || unit.ends_with("seconds") || {
        let one = unit.strip_suffix('s').unwrap_or(&unit);
        ["minute", "hour", "day"].contains(&one)
    }
}

/// Returns the length of a CF unit in nanoseconds, by a name that xarray knows; `None` for other names.
pub fn unit_of(name: &str) -> Option<i64> {
    let name = name.to_ascii_lowercase();
    Some(match name.as_str() {
        "nanosecond" | "nanoseconds" => 1,
        "microsecond" | "microseconds" | "microsec" | "microsecs" => 1_000,
        "millisecond" | "milliseconds" | "millisec" | "millisecs" | "msec" | "msecs" | "ms" => {
            1_000_000
        }
        "second" | "seconds" | "sec" | "secs" | "s" => 1_000_000_000,
        "minute" | "minutes" | "min" | "mins" => 60_000_000_000,
        "hour" | "hours" | "hr" | "hrs" | "h" => 3_600_000_000_000,
        "day" | "days" | "d" => 86_400_000_000_000,
        _ => return None,
    })
}

/// A date and a time of day, and how precisely the text states them.
#[derive(Clone, Copy, Debug)]
struct CalendarDate {
    year: i64,
    month: i64,
    day: i64,
    /// Nanoseconds since midnight UTC of the date; the offset of the time zone is subtracted.
    nanoseconds: i128,
    /// Whether the time of day is valid: its hour is at most 23, its minute and second at most 59.
    is_time: bool,
    precision: Precision,
    length: usize,
}

#[derive(Clone, Copy, Debug)]
enum Precision {
    Year,
    Month,
    Nanoseconds(i128),
}

/// Parses the numbers of a date from the front of a text.
struct Digits<'a> {
    text: &'a str,
    at: usize,
    /// Whether minutes and seconds must have two digits. In slices they must, because a colon and a step may follow a
    /// time.
    is_strict: bool,
}

impl Digits<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Parses a number of 1 to `most` digits. If `before` is not empty, one of its characters must precede the number;
    /// no further digit may follow the number.
    fn number(&mut self, before: &[char], most: usize) -> Option<i64> {
        let rest = self.rest();
        let digits = match before {
            [] => rest,
            _ => rest.strip_prefix(before)?,
        };
        let count = digits.bytes().take_while(u8::is_ascii_digit).count();
        let is_short = self.is_strict && before == [':'] && count < 2;
        if count == 0 || count > most || is_short {
            return None;
        }
        let number = digits.get(..count)?.parse().ok()?;
        self.at += rest.len() - digits.len() + count;
        Some(number)
    }
}

impl CalendarDate {
    /// Parses a text that is a date, optionally with a time of day and a time zone.
    fn parse(text: &str) -> Option<CalendarDate> {
        let date = CalendarDate::leading(text, false)?;
        let rest = text.get(date.length..)?.trim();
        if ["", "Z", "UTC", "GMT"].contains(&rest) {
            return Some(date);
        }
        // A sign right after the day, without a time of day, does not begin a time zone: the text has another date
        // format.
        let follows = !text.get(date.length..)?.starts_with(' ');
        let is_day = !matches!(date.precision, Precision::Nanoseconds(unit) if unit < DAY);
        if follows && is_day {
            return None;
        }
        let (sign, zone) = match rest.as_bytes().first()? {
            b'+' => (1, rest.get(1..)?),
            b'-' => (-1, rest.get(1..)?),
            _ => return None,
        };
        let (hours, minutes) = match zone.split_once(':') {
            Some((hours, minutes)) => (hours, minutes),
            None if zone.len() == 4 => zone.split_at_checked(2)?,
            None => (zone, "0"),
        };
        let is_count = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let number = |text: &str| {
            let number: u16 = text.parse().ok().filter(|_| is_count(text))?;
            Some(i128::from(number))
        };
        let minutes = number(hours)? * 60 + number(minutes)?;
        Some(CalendarDate {
            nanoseconds: date.nanoseconds - sign * minutes * 60 * SECOND,
            ..date
        })
    }

    /// Parses the date at the beginning of a text, which may go on after it.
    fn leading(text: &str, is_strict: bool) -> Option<CalendarDate> {
        let mut digits = Digits {
            text,
            at: 0,
            is_strict,
        };
        let is_negative = text.starts_with('-');
        let year = digits.number(if is_negative { &['-'] } else { &[] }, 6)?;
        let mut date = CalendarDate {
            year: if is_negative { -year } else { year },
            month: 1,
            day: 1,
            nanoseconds: 0,
            is_time: true,
            precision: Precision::Year,
            length: 0,
        };
        if let Some(month) = digits.number(&['-'], 2) {
            (date.month, date.precision) = (month, Precision::Month);
            if let Some(day) = digits.number(&['-'], 2) {
                (date.day, date.precision) = (day, Precision::Nanoseconds(DAY));
                date.read_time(&mut digits);
            }
        }
        date.length = digits.at;
        let is_date = (1..=12).contains(&date.month) && (1..=31).contains(&date.day);
        is_date.then_some(date)
    }

    /// Parses the time of day. The seconds may be missing, the minutes and seconds, or the whole time.
    fn read_time(&mut self, digits: &mut Digits) {
        let units = [
            (&['T', ' '][..], 24, 3600 * SECOND),
            (&[':'][..], 60, 60 * SECOND),
            (&[':'][..], 60, SECOND),
        ];
        for (before, count, unit) in units {
            let Some(number) = digits.number(before, 2) else {
                return;
            };
            self.is_time &= number < count;
            self.nanoseconds += i128::from(number) * unit;
            self.precision = Precision::Nanoseconds(unit);
        }
        let before = digits.at;
        if let Some(fraction) = digits.number(&['.'], 9) {
            let places = u32::try_from(digits.at - before - 1).unwrap_or(0);
            let unit = SECOND / 10_i128.pow(places.min(9));
            self.nanoseconds += i128::from(fraction) * unit;
            self.precision = Precision::Nanoseconds(unit);
        }
    }

    /// Returns the date, or `None` if the calendar has no such day.
    fn in_calendar(self, calendar: Calendar) -> Option<CalendarDate> {
        let day = (self.year, self.month, self.day);
        let is_day = calendar.date(calendar.days(day.0, day.1, day.2)) == day;
        (is_day && self.is_time).then_some(self)
    }

    fn start(&self, calendar: Calendar) -> i128 {
        let days = calendar.days(self.year, self.month, self.day);
        i128::from(days) * DAY + self.nanoseconds
    }

    fn end(&self, calendar: Calendar) -> i128 {
        let next = match self.precision {
            Precision::Nanoseconds(unit) => return self.start(calendar) + unit,
            Precision::Month if self.month < 12 => (self.year, self.month + 1),
            Precision::Month | Precision::Year => (self.year + 1, 1),
        };
        i128::from(calendar.days(next.0, next.1, 1)) * DAY
    }
}

/// Returns the period that a date text names: the whole year, month, day or minute if the text has no smaller unit.
pub(crate) fn period_of(label: &str, calendar: Calendar) -> Option<Range<i128>> {
    let date = CalendarDate::parse(label.trim())?.in_calendar(calendar)?;
    Some(date.start(calendar)..date.end(calendar))
}

/// Splits a slice of times, such as `2020-01-01T12:30:2021`, at the colons that are not inside a time.
pub(crate) fn split_times(text: &str) -> Vec<&str> {
    let mut rest = text.trim();
    let mut parts = Vec::new();
    loop {
        let length = CalendarDate::leading(rest, true).map_or(0, |date| date.length);
        let after = rest.get(length..).unwrap_or_default();
        match after.split_once(':') {
            Some((more, next)) => {
                parts.push(rest.get(..length + more.len()).unwrap_or_default().trim());
                rest = next;
            }
            None => {
                parts.push(rest.trim());
                return parts;
            }
        }
    }
}

/// Formats a time (in nanoseconds since 1970) as ISO 8601.
pub fn time_text(time: i128, calendar: Calendar) -> String {
    let (days, within) = (time.div_euclid(DAY), time.rem_euclid(DAY));
    // The limit of 2^47 days is beyond 2^63 seconds, so it changes no time with a 64-bit count of seconds.
    let days = i64::try_from(days.clamp(-(1 << 47), 1 << 47)).unwrap_or(0);
    let (year, month, day) = calendar.date(days);
    let seconds = within / SECOND;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    let fraction = format!("{:09}", within % SECOND);
    let fraction = fraction.trim_end_matches('0');
    if !fraction.is_empty() {
        text.push('.');
        text.push_str(fraction);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn day_numbers_become_dates_and_dates_the_same_numbers() {
        let calendars = [
            Calendar::Gregorian,
            Calendar::Julian,
            Calendar::NoLeap,
            Calendar::AllLeap,
            Calendar::Days360,
        ];
        for (calendar, days) in calendars.into_iter().flat_map(|calendar| {
            (-1_000_000..1_000_000)
                .step_by(997)
                .map(move |days| (calendar, days))
        }) {
            let (year, month, day) = calendar.date(days);
            assert_eq!(calendar.days(year, month, day), days, "{calendar:?}");
            assert!(
                (1..=12).contains(&month) && (1..=31).contains(&day),
                "{calendar:?}"
            );
        }
    }

    #[test]
    fn iso_dates_are_parsed_and_written() {
        let period_of = |text: &str| super::period_of(text, Calendar::Gregorian);
        let time_text = |time| super::time_text(time, Calendar::Gregorian);
        let start = |text: &str| period_of(text).unwrap().start / SECOND;
        assert_eq!(start("1970-01-01"), 0);
        assert_eq!(start("2000-02-29T12:30"), 951_827_400);
        assert_eq!(start("1969-12-31 23:59:59"), -1);
        assert_eq!(start("2020-01-01T00:00:00+01:00"), 1_577_833_200);
        let leap = period_of("2000-02").unwrap();
        assert_eq!((leap.end - leap.start) / DAY, 29);
        assert_eq!(
            time_text(period_of("1600-12-31T01:02:03.25").unwrap().start),
            "1600-12-31T01:02:03.25"
        );
        assert!(period_of("2020-13-01").is_none() && period_of("x").is_none());
    }

    #[test]
    fn the_origin_of_a_time_count_follows_its_calendar() {
        let origin = |units: &str, calendar: &str| {
            TimeCount::parse(units, calendar).map(|count| count.origin / DAY)
        };
        assert_eq!(origin("days since 2000-1-1", "standard"), Some(10_957));
        // 0001-01-01 of the Julian calendar is two days before 0001-01-01 of the Gregorian calendar.
        assert_eq!(
            origin("hours since 0001-01-01", "proleptic_gregorian"),
            Some(-719_162)
        );
        assert_eq!(
            origin("hours since 0001-01-01", "gregorian"),
            Some(-719_164)
        );
        let days = |from: &str, to: &str, calendar: &str| {
            let origin = |units: &str| origin(&format!("days since {units}"), calendar).unwrap();
            origin(to) - origin(from)
        };
        assert_eq!(days("2000-02-28", "2000-03-01", "noleap"), 1);
        assert_eq!(days("2001-02-28", "2001-03-01", "366_day"), 2);
        assert_eq!(days("2000-01-01", "2001-01-01", "360_day"), 360);
        assert_eq!(days("1900-02-28", "1900-03-01", "julian"), 2);
        assert_eq!(origin("days since 2000-01-01", "mine"), None);
        assert_eq!(origin("months since 2000-01-01", "standard"), None);
        let hours = |units: &str| {
            let count = TimeCount::parse(units, "standard");
            count.map(|count| (count.origin - 10_957 * DAY) / (3600 * SECOND))
        };
        assert_eq!(hours("days since 2000-01-01 00:00 +0200"), Some(-2));
        assert_eq!(hours("days since 2000-01-01 -2:00"), Some(2));
        // These characters take several bytes; the split of a time zone without a colon after two bytes must not panic
        // at them.
        for zone in ["+\u{20ac}1", "+", "-", "+1\u{e9}1", "++1", "+-1:00"] {
            let units = format!("days since 2000-01-01 {zone}");
            assert_eq!(hours(&units), None, "{units}");
        }
        let far = format!("days since 2000-01-01 -{}", i128::MAX);
        assert_eq!(hours(&far), None);
    }

    #[test]
    fn the_units_and_date_forms_of_xarray_are_parsed() {
        let count = |units: &str| TimeCount::parse(units, "standard");
        for (name, unit) in [
            ("s", 1),
            ("Sec", 1),
            ("secs", 1),
            ("min", 60),
            ("h", 3600),
            ("HR", 3600),
            ("d", 86_400),
        ] {
            let count = count(&format!("{name} since 2000-01-01"));
            assert_eq!(
                count.map(|count| i128::from(count.unit)),
                Some(unit * SECOND),
                "{name}"
            );
        }
        let milliseconds = count("msecs since 2000-01-01").map(|count| count.unit);
        assert_eq!(milliseconds, Some(1_000_000));
        for other in ["us", "ns", "m", "weeks", ""] {
            assert_eq!(count(&format!("{other} since 2000-01-01")), None);
        }
        for date in ["2000/01/01", "2000/1/1", "20000101", "2000/01/01 00:00"] {
            let found = count(&format!("days since {date}"));
            assert_eq!(found, count("days since 2000-01-01"), "{date}");
        }
    }

    #[test]
    fn invalid_dates_of_a_calendar_are_refused() {
        for (date, calendar) in [
            ("2000-02-30", "standard"),
            ("2001-02-29", "standard"),
            ("2000-04-31", "proleptic_gregorian"),
            ("2000-01-01 12:60", "standard"),
            ("2000-01-01 24:00", "standard"),
            ("2000-01-01 12:00:60", "standard"),
            ("2000-001", "standard"),
            ("01-01-2000", "standard"),
            ("1582-10-10", "standard"),
            ("0000-01-01", "standard"),
            ("0-1-1", "julian"),
            ("2000-02-29", "noleap"),
            ("2000-01-31", "360_day"),
        ] {
            let units = format!("days since {date}");
            assert_eq!(TimeCount::parse(&units, calendar), None, "{units}");
        }
        for (date, calendar) in [
            ("2001-02-29", "all_leap"),
            ("1900-02-29", "julian"),
            ("2000-02-30", "360_day"),
            ("0000-01-01", "proleptic_gregorian"),
        ] {
            let units = format!("days since {date}");
            assert!(TimeCount::parse(&units, calendar).is_some(), "{units}");
        }
        assert!(period_of("2000-02-30", Calendar::Gregorian).is_none());
        assert!(period_of("2000-02-29", Calendar::NoLeap).is_none());
        assert!(period_of("2000-02-29T24", Calendar::Gregorian).is_none());
    }

    #[test]
    fn slices_of_times_are_split_at_the_right_colons() {
        assert_eq!(split_times("2020:2021"), ["2020", "2021"]);
        assert_eq!(
            split_times("2020-01-01T12:30:2020-01-02T00:15:2"),
            ["2020-01-01T12:30", "2020-01-02T00:15", "2"]
        );
        assert_eq!(split_times(":2020-01"), ["", "2020-01"]);
        assert_eq!(split_times("2020-01-01T12"), ["2020-01-01T12"]);
    }
}
