//! What stands in `#[gateway(…)]` and `#[rpc(…)]`.

use std::{num::NonZeroU32, time::Duration};

use syn::{
    Ident, LitInt, LitStr, Result, Token, bracketed,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
};

/// `name = "…", callers = ["…"], fenced` of a gateway.
#[derive(Debug)]
pub(crate) struct GatewayAttribute {
    pub(crate) name: Option<LitStr>,
    pub(crate) callers: Vec<LitStr>,
    pub(crate) fenced: bool,
}

impl Parse for GatewayAttribute {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut name = None;
        let mut callers = None;
        let mut fenced = false;
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            match key.to_string().as_str() {
                "name" => name = Some(value::<LitStr>(input)?),
                "callers" => callers = Some(roles(input)?),
                "fenced" => fenced = true,
                _ => {
                    return Err(syn::Error::new(
                        key.span(),
                        "unknown key: `name`, `callers` and `fenced` are allowed",
                    ));
                }
            }
            comma(input)?;
        }
        let callers = callers.ok_or_else(|| {
            input.error(
                "`callers` is missing: the roles that may call remotely, such as `callers = [\"taskmanager\"]`; \
                 `[]` for local callers only, `[\"*\"]` for every role",
            )
        })?;
        Ok(Self {
            name,
            callers,
            fenced,
        })
    }
}

/// `timeout = "…", callers = ["…"], max_per_second = …, unfenced` of a method.
#[derive(Debug, Default)]
pub(crate) struct MethodAttribute {
    pub(crate) timeout: Option<Timeout>,
    pub(crate) callers: Option<Vec<LitStr>>,
    pub(crate) max_per_second: Option<NonZeroU32>,
    pub(crate) unfenced: bool,
}

/// A method's own time-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timeout {
    After(Duration),
    Never,
}

impl Parse for MethodAttribute {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut attribute = Self::default();
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            match key.to_string().as_str() {
                "timeout" => {
                    let text: LitStr = value(input)?;
                    attribute.timeout = Some(timeout(&text)?);
                }
                "callers" => attribute.callers = Some(roles(input)?),
                "max_per_second" => {
                    let number: LitInt = value(input)?;
                    attribute.max_per_second = Some(number.base10_parse()?);
                }
                "unfenced" => attribute.unfenced = true,
                _ => {
                    return Err(syn::Error::new(
                        key.span(),
                        "unknown key: `timeout`, `callers`, `max_per_second` and `unfenced` are allowed",
                    ));
                }
            }
            comma(input)?;
        }
        Ok(attribute)
    }
}

fn value<T: Parse>(input: ParseStream<'_>) -> Result<T> {
    input.parse::<Token![=]>()?;
    input.parse()
}

fn comma(input: ParseStream<'_>) -> Result<()> {
    if !input.is_empty() {
        input.parse::<Token![,]>()?;
    }
    Ok(())
}

fn roles(input: ParseStream<'_>) -> Result<Vec<LitStr>> {
    input.parse::<Token![=]>()?;
    let list;
    bracketed!(list in input);
    let roles = Punctuated::<LitStr, Token![,]>::parse_terminated(&list)?;
    Ok(roles.into_iter().collect())
}

fn timeout(text: &LitStr) -> Result<Timeout> {
    let value = text.value();
    if value == "never" {
        return Ok(Timeout::Never);
    }
    let bad = || {
        syn::Error::new(
            text.span(),
            "a time-out is a whole number with `ms`, `s` or `m`, such as \"30s\", or \"never\"",
        )
    };
    let digits = value.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
    let number: u64 = value[..digits].parse().map_err(|_| bad())?;
    let millis = match &value[digits..] {
        "ms" => Some(number),
        "s" => number.checked_mul(1000),
        "m" => number.checked_mul(60_000),
        _ => None,
    };
    match millis {
        Some(millis) if millis > 0 => Ok(Timeout::After(Duration::from_millis(millis))),
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_outs_are_read_as_people_write_them() {
        let read = |text: &str| timeout(&LitStr::new(text, proc_macro2::Span::call_site()));
        assert_eq!(
            read("30s").unwrap(),
            Timeout::After(Duration::from_secs(30))
        );
        assert_eq!(
            read("5m").unwrap(),
            Timeout::After(Duration::from_secs(300))
        );
        assert_eq!(
            read("250ms").unwrap(),
            Timeout::After(Duration::from_millis(250))
        );
        assert_eq!(read("never").unwrap(), Timeout::Never);
        for bad in ["", "30", "s", "0s", "1h", "-1s", "99999999999999999999s"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_rate_is_a_number_above_zero() {
        let read = syn::parse_str::<MethodAttribute>;
        let attribute = read("max_per_second = 100, unfenced").unwrap();
        assert_eq!(attribute.max_per_second.map(NonZeroU32::get), Some(100));
        for bad in [
            "max_per_second = 0",
            "max_per_second = -1",
            "max_per_second",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_gateway_must_say_who_may_call() {
        let error = syn::parse_str::<GatewayAttribute>("fenced").unwrap_err();
        assert!(error.to_string().contains("`callers` is missing"));
    }
}
