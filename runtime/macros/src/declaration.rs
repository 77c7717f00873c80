//! A checked gateway declaration.

use std::{collections::HashMap, num::NonZeroU32};

use proc_macro2::Span;
use syn::{
    Attribute, Error, FnArg, Ident, ItemTrait, LitStr, Pat, Result, ReturnType, TraitItem,
    TraitItemFn, Type, Visibility, parse_quote,
};

use crate::attribute::{GatewayAttribute, MethodAttribute, Timeout};

/// Everything that the expansion needs.
#[derive(Debug)]
pub(crate) struct Declaration {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) server: Ident,
    pub(crate) client: Ident,
    pub(crate) call: Ident,
    pub(crate) name: LitStr,
    pub(crate) methods: Vec<Method>,
}

/// One method of a gateway.
#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) name: Ident,
    pub(crate) variant: Ident,
    pub(crate) id: u32,
    pub(crate) arguments: Vec<(Ident, Type)>,
    /// `None` for a tell.
    pub(crate) answer: Option<Type>,
    pub(crate) timeout: Option<Timeout>,
    pub(crate) callers: Vec<LitStr>,
    pub(crate) max_per_second: Option<NonZeroU32>,
    pub(crate) fenced: bool,
}

impl Declaration {
    pub(crate) fn new(attribute: &GatewayAttribute, item: &ItemTrait) -> Result<Self> {
        if !item.generics.params.is_empty() {
            return Err(Error::new_spanned(
                &item.generics,
                "a gateway has no type parameters",
            ));
        }
        if !item.supertraits.is_empty() {
            return Err(Error::new_spanned(
                &item.supertraits,
                "a gateway has no supertraits: an endpoint may serve several gateways",
            ));
        }
        let server = item.ident.clone();
        let text = server.to_string();
        let stem = text.strip_suffix("Gateway").unwrap_or(&text);
        if stem.is_empty() {
            return Err(Error::new_spanned(&server, "the gateway needs a name"));
        }
        let client = Ident::new(&format!("{stem}Client"), server.span());
        let call = Ident::new(&format!("__{stem}Call"), server.span());
        let name = attribute
            .name
            .clone()
            .unwrap_or_else(|| LitStr::new(stem, server.span()));
        let valid = !name.value().is_empty()
            && name.value().len() <= MAX_NAME_BYTES
            && name.value().bytes().all(|b| b.is_ascii_graphic());
        if !valid {
            return Err(Error::new(
                name.span(),
                "a gateway's name has 1 to 128 printable ASCII characters without spaces",
            ));
        }
        let mut methods: Vec<Method> = Vec::new();
        let mut ids: HashMap<u32, String> = HashMap::new();
        for item in &item.items {
            let TraitItem::Fn(function) = item else {
                return Err(Error::new_spanned(item, "a gateway has only methods"));
            };
            let method = Method::new(attribute, function)?;
            if let Some(other) = ids.insert(method.id, method.name.to_string()) {
                return Err(Error::new_spanned(
                    &method.name,
                    format!(
                        "the methods `{other}` and `{}` have the same id {:#010x}: rename one",
                        method.name, method.id
                    ),
                ));
            }
            methods.push(method);
        }
        Ok(Self {
            attributes: item.attrs.clone(),
            visibility: item.vis.clone(),
            server,
            client,
            call,
            name,
            methods,
        })
    }
}

impl Method {
    fn new(gateway: &GatewayAttribute, function: &TraitItemFn) -> Result<Self> {
        let signature = &function.sig;
        if let Some(body) = &function.default {
            return Err(Error::new_spanned(
                body,
                "a gateway's method has no body: the endpoint has it",
            ));
        }
        if !signature.generics.params.is_empty() {
            return Err(Error::new_spanned(
                &signature.generics,
                "a gateway's method has no type parameters: the peer would not know them",
            ));
        }
        let mut inputs = signature.inputs.iter();
        let shared_self = matches!(
            inputs.next(),
            Some(FnArg::Receiver(receiver))
                if receiver.reference.is_some() && receiver.mutability.is_none()
        );
        if !shared_self {
            return Err(Error::new_spanned(
                &signature.ident,
                "a gateway's method takes `&self`",
            ));
        }
        let arguments = inputs.map(argument).collect::<Result<Vec<_>>>()?;
        let answer = match (&signature.asyncness, &signature.output) {
            (Some(_), ReturnType::Default) => Some(parse_quote!(())),
            (Some(_), ReturnType::Type(_, ty)) => Some((**ty).clone()),
            (None, ReturnType::Default) => None,
            (None, ReturnType::Type(..)) => {
                return Err(Error::new_spanned(
                    &signature.output,
                    "a method that answers is `async`; one that is not tells, and has no answer",
                ));
            }
        };
        let mut attributes = Vec::new();
        let mut own = MethodAttribute::default();
        for attribute in &function.attrs {
            if attribute.path().is_ident("rpc") {
                own = attribute.parse_args()?;
            } else {
                attributes.push(attribute.clone());
            }
        }
        if answer.is_none() && own.timeout.is_some() {
            return Err(Error::new_spanned(
                &signature.ident,
                "a tell has no time-out: nothing is waited for",
            ));
        }
        let name = signature.ident.clone();
        Ok(Self {
            attributes,
            variant: Ident::new(&camel_case(&name.to_string()), name.span()),
            id: method_id(&name.to_string()),
            arguments,
            answer,
            timeout: own.timeout,
            callers: own.callers.unwrap_or_else(|| gateway.callers.clone()),
            max_per_second: own.max_per_second,
            fenced: gateway.fenced && !own.unfenced,
            name,
        })
    }
}

fn argument(input: &FnArg) -> Result<(Ident, Type)> {
    let FnArg::Typed(typed) = input else {
        return Err(Error::new_spanned(input, "`self` comes first"));
    };
    let Pat::Ident(pattern) = &*typed.pat else {
        return Err(Error::new_spanned(
            &typed.pat,
            "an argument is a plain name",
        ));
    };
    if pattern.ident == "cx" {
        return Err(Error::new_spanned(
            &pattern.ident,
            "`cx` is the context that the endpoint's method gets: choose another name",
        ));
    }
    if let Type::Reference(reference) = &*typed.ty {
        return Err(Error::new_spanned(
            reference,
            "an argument is owned: it outlives the caller's stack",
        ));
    }
    Ok((pattern.ident.clone(), (*typed.ty).clone()))
}

/// FNV-1a with 32 bits: stable, and good enough since clashes inside a gateway do not compile.
fn method_id(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

fn camel_case(name: &str) -> String {
    let name = name.strip_prefix("r#").unwrap_or(name);
    name.split('_')
        .flat_map(|word| {
            let mut chars = word.chars();
            let first = chars.next().map(|c| c.to_ascii_uppercase());
            first.into_iter().chain(chars)
        })
        .collect()
}

impl Declaration {
    /// Where the generated helper items belong in error messages.
    pub(crate) fn span(&self) -> Span {
        self.server.span()
    }
}

/// The handshake carries the length in one byte; endpoint names have the same limit.
const MAX_NAME_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn declare(item: ItemTrait) -> Result<Declaration> {
        let attribute = syn::parse_str("callers = [\"taskmanager\"], fenced").unwrap();
        Declaration::new(&attribute, &item)
    }

    #[test]
    fn method_ids_are_fnv_1a_of_the_name() {
        // Vectors of the FNV reference code.
        assert_eq!(method_id(""), 0x811c_9dc5);
        assert_eq!(method_id("a"), 0xe40c_292c);
        assert_eq!(method_id("foobar"), 0xbf9c_f968);
    }

    #[test]
    fn methods_with_the_same_id_do_not_compile() {
        // A known pair of FNV-1a collisions.
        assert_eq!(method_id("costarring"), method_id("liquid"));
        let error = declare(parse_quote! {
            trait ColourGateway {
                fn costarring(&self);
                fn liquid(&self);
            }
        })
        .unwrap_err();
        assert!(error.to_string().contains("same id"), "{error}");
    }

    #[test]
    fn methods_take_the_gateways_settings_unless_they_have_their_own() {
        let declaration = declare(parse_quote! {
            trait JobMasterGateway {
                async fn register(&self, info: u32) -> bool;
                #[rpc(timeout = "30s", callers = ["client"], unfenced)]
                async fn cancel(&self);
                fn heartbeat(&self);
            }
        })
        .unwrap();
        assert_eq!(declaration.client, "JobMasterClient");
        let [register, cancel, heartbeat] = &declaration.methods[..] else {
            panic!("three methods");
        };
        assert!(register.fenced && register.answer.is_some());
        assert_eq!(register.callers[0].value(), "taskmanager");
        assert!(!cancel.fenced && cancel.timeout.is_some());
        assert_eq!(cancel.callers[0].value(), "client");
        assert!(heartbeat.answer.is_none());
    }

    #[test]
    fn what_cannot_be_called_remotely_is_refused() {
        let bad: [ItemTrait; 6] = [
            parse_quote! { trait XGateway<T> { fn a(&self); } },
            parse_quote! { trait XGateway { fn a(&mut self); } },
            parse_quote! { trait XGateway { fn a(&self) -> u32; } },
            parse_quote! { trait XGateway { fn a(&self, text: &str); } },
            parse_quote! { trait XGateway { fn a<T>(&self, value: T); } },
            parse_quote! { trait XGateway { fn a(&self, cx: u32); } },
        ];
        for item in bad {
            assert!(declare(item).is_err());
        }
    }
}
