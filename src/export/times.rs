//! Times as people and CF write them: dates, and counts of a unit since a date.
//!
//! Times are nanoseconds since 1970-01-01 in UTC, of any size; in calendars whose days other people do not have, since a
//! day of their own. Dates before 1582-10-15 that CF counts from in its standard calendar are Julian.

use std::ops::Range;

use crate::export::calendar::Calendar;

const SECOND: i128 = 1_000_000_000;
const DAY: i128 = 86_400 * SECOND;

/// Counts of a unit since a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeCount {
    /// Nanoseconds of the unit.
    pub unit: i64,
    /// The date.
    pub origin: i128,
    /// The calendar that the times are in.
    pub calendar: Calendar,
}

impl TimeCount {
    /// Reads `days since 2000-01-01 12:00` of a calendar by its name; nothing for what is none.
    pub fn parse(units: &str, calendar: &str) -> Option<TimeCount> {
        let (unit, date) = units.split_once(" since ")?;
        let date = CalendarDate::parse(date.trim())?;
        let is_early = (date.year, date.month, date.day) < (1582, 10, 15);
        let (calendar, of_date) = match calendar.to_ascii_lowercase().as_str() {
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
        Some(TimeCount {
            unit: unit_of(unit.trim())?,
            origin: date.start(of_date),
            calendar,
        })
    }
}

/// Returns the nanoseconds of a unit of CF.
pub fn unit_of(name: &str) -> Option<i64> {
    let name = name.to_ascii_lowercase();
    Some(match name.strip_suffix('s').unwrap_or(&name) {
        "nanosecond" => 1,
        "microsecond" => 1_000,
        "millisecond" => 1_000_000,
        "second" => 1_000_000_000,
        "minute" => 60_000_000_000,
        "hour" => 3_600_000_000_000,
        "day" => 86_400_000_000_000,
        _ => return None,
    })
}

/// A date with a time of the day, as precise as it is given.
#[derive(Clone, Copy, Debug)]
struct CalendarDate {
    year: i64,
    month: i64,
    day: i64,
    /// Nanoseconds of the day, and minus those that the time zone is ahead.
    nanoseconds: i128,
    /// How much it leaves open.
    precision: Precision,
    /// Bytes of the text.
    length: usize,
}

#[derive(Clone, Copy, Debug)]
enum Precision {
    Year,
    Month,
    Nanoseconds(i128),
}

/// Reads numbers off the front of a text.
struct Digits<'a> {
    text: &'a str,
    at: usize,
    /// Whether minutes and seconds have two digits, as in slices, where a step may follow.
    is_strict: bool,
}

impl Digits<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Reads `before` and at least one, at most `most` digits that no other digit follows.
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
    /// Reads a date that is all of a text, but for the name of a time zone, which must be that of UTC.
    fn parse(text: &str) -> Option<CalendarDate> {
        let date = CalendarDate::leading(text, false)?;
        let rest = text.get(date.length..)?.trim();
        if ["", "Z", "UTC", "GMT"].contains(&rest) {
            return Some(date);
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

    /// Reads the date that a text begins with.
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

    /// Reads the time of the day, as far as there is one.
    fn read_time(&mut self, digits: &mut Digits) {
        let units = [
            (&['T', ' '][..], 3600 * SECOND),
            (&[':'][..], 60 * SECOND),
            (&[':'][..], SECOND),
        ];
        for (before, unit) in units {
            let Some(number) = digits.number(before, 2) else {
                return;
            };
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

/// Returns the times that a date stands for: a year, a month, a day, a minute.
pub fn period_of(label: &str, calendar: Calendar) -> Option<Range<i128>> {
    let date = CalendarDate::parse(label.trim())?;
    Some(date.start(calendar)..date.end(calendar))
}

/// Splits a slice of times at its colons, those within times left out.
pub fn split_times(text: &str) -> Vec<&str> {
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

/// Writes a time as ISO 8601 does.
pub fn time_text(time: i128, calendar: Calendar) -> String {
    let (days, within) = (time.div_euclid(DAY), time.rem_euclid(DAY));
    // Further than any count of seconds in eight bytes reaches.
    const FURTHEST: i128 = 1 << 47;
    let days = i64::try_from(days.clamp(-FURTHEST, FURTHEST)).unwrap_or(0);
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
    fn dates_are_those_of_other_programs() {
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
    fn counts_begin_where_their_calendar_says() {
        let origin = |units: &str, calendar: &str| {
            TimeCount::parse(units, calendar).map(|count| count.origin / DAY)
        };
        assert_eq!(origin("days since 2000-1-1", "standard"), Some(10_957));
        // In the Julian calendar of that time, two days before the Gregorian one.
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
        // A sign of three bytes and a digit have the length of hours and minutes.
        for zone in ["+\u{20ac}1", "+", "-", "+1\u{e9}1", "++1", "+-1:00"] {
            let units = format!("days since 2000-01-01 {zone}");
            assert_eq!(hours(&units), None, "{units}");
        }
        let far = format!("days since 2000-01-01 -{}", i128::MAX);
        assert_eq!(hours(&far), None);
    }

    #[test]
    fn slices_of_times_are_split_between_them() {
        assert_eq!(split_times("2020:2021"), ["2020", "2021"]);
        assert_eq!(
            split_times("2020-01-01T12:30:2020-01-02T00:15:2"),
            ["2020-01-01T12:30", "2020-01-02T00:15", "2"]
        );
        assert_eq!(split_times(":2020-01"), ["", "2020-01"]);
        assert_eq!(split_times("2020-01-01T12"), ["2020-01-01T12"]);
    }
}
