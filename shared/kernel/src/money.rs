//! Money: whole minor units (cents, 分) with an ISO 4217 currency. Never a float.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::Quantity;

/// The highest price of one unit. Times the largest quantity it stays below 2⁵³, the last whole number that every JSON
/// reader keeps exact.
pub const MAX_PRICE: u64 = 1_000_000_000_000;

/// Minor units of a currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cents(u64);

/// A price of one unit: 1 to [`MAX_PRICE`] minor units. What costs nothing could never be paid: a payment is at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Price(u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a price is a whole number of minor units from 1 to {MAX_PRICE}")]
pub struct PriceError;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a currency is three capital letters (ISO 4217)")]
pub struct CurrencyError;

impl Cents {
    pub const fn new(minor_units: u64) -> Self {
        Self(minor_units)
    }

    pub fn get(self) -> u64 {
        self.0
    }
}

impl Price {
    pub fn get(self) -> u64 {
        self.0
    }

    /// What `quantity` units cost. The bounds of both make an overflow impossible.
    pub fn times(self, quantity: Quantity) -> Cents {
        Cents(self.0 * u64::from(quantity.get()))
    }
}

impl TryFrom<u64> for Price {
    type Error = PriceError;

    fn try_from(minor_units: u64) -> Result<Self, PriceError> {
        if (1..=MAX_PRICE).contains(&minor_units) { Ok(Self(minor_units)) } else { Err(PriceError) }
    }
}

impl From<Price> for u64 {
    fn from(price: Price) -> u64 {
        price.0
    }
}

/// An ISO 4217 code, by its form; which codes exist is the payment provider's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Currency([u8; 3]);

impl Currency {
    pub fn as_str(&self) -> &str {
        // Only capital letters get in, so this is always text.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl TryFrom<String> for Currency {
    type Error = CurrencyError;

    fn try_from(code: String) -> Result<Self, CurrencyError> {
        match <[u8; 3]>::try_from(code.as_bytes()) {
            Ok(letters) if letters.iter().all(u8::is_ascii_uppercase) => Ok(Self(letters)),
            Ok(_) | Err(_) => Err(CurrencyError),
        }
    }
}

impl From<Currency> for String {
    fn from(currency: Currency) -> String {
        currency.as_str().to_owned()
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::MAX_QUANTITY;

    #[test]
    fn the_dearest_order_is_exact_in_every_json_reader() {
        let dearest = Price::try_from(MAX_PRICE).unwrap().times(Quantity::try_from(MAX_QUANTITY).unwrap());
        assert!(dearest.get() < 1 << 53);
        assert!(Price::try_from(MAX_PRICE + 1).is_err());
    }

    #[test]
    fn nothing_is_sold_for_nothing() {
        assert_eq!((Price::try_from(0).is_err(), Price::try_from(1).map(Price::get)), (true, Ok(1)));
    }

    #[test]
    fn currencies_are_three_capital_letters() {
        assert_eq!(Currency::try_from("CNY".to_owned()).map(String::from), Ok("CNY".to_owned()));
        for bad in ["cny", "CN", "CNYY", "C1Y", ""] {
            assert!(Currency::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
