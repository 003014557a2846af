//! The calendars of CF: converts dates to day numbers and back.
//!
//! Days are counted from 1970-01-01; in model calendars, whose days do not match real ones, from a day of their own.

/// A calendar of CF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calendar {
    /// The Gregorian calendar, extended to all times.
    Gregorian,
    /// A leap day every fourth year.
    Julian,
    /// Every year has 365 days.
    NoLeap,
    /// Every year has 366 days.
    AllLeap,
    /// Every month has 30 days.
    Days360,
}

impl Calendar {
    /// Returns the day number of a date.
    pub(super) fn days(self, year: i64, month: i64, day: i64) -> i64 {
        if self == Calendar::Days360 {
            return year * 360 + (month - 1) * 30 + day - 1;
        }
        // Years start in March, so that a leap day is the last day of its year.
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

    /// Returns the year, month and day of a day number; the inverse of `days`.
    pub(super) fn date(self, days: i64) -> (i64, i64, i64) {
        if self == Calendar::Days360 {
            let within = days.rem_euclid(360);
            return (days.div_euclid(360), within / 30 + 1, within % 30 + 1);
        }
        // Finds the last first of March up to that day.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_the_dates_that_they_are_counted_of() {
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
}
