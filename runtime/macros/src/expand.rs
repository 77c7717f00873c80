//! What a gateway declaration turns into.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};

use crate::{
    attribute::Timeout,
    declaration::{Declaration, Method},
};

pub(crate) fn expand(declaration: &Declaration) -> TokenStream {
    let server = server(declaration);
    let client = client(declaration);
    let call = call(declaration);
    let bindings = bindings(declaration);
    quote! { #server #client #call #bindings }
}

fn server(declaration: &Declaration) -> TokenStream {
    let Declaration {
        attributes,
        visibility,
        server,
        ..
    } = declaration;
    let methods = declaration.methods.iter().map(|method| {
        let (attributes, name) = (&method.attributes, &method.name);
        let (names, types) = names_and_types(method);
        let answer = method
            .answer
            .as_ref()
            .map(|answer| quote! { -> ::thalweg_runtime::rpc::Answer<#answer> });
        quote! {
            #(#attributes)*
            fn #name(
                &mut self,
                cx: &mut ::thalweg_runtime::rpc::Context<Self>,
                #(#names: #types),*
            ) #answer;
        }
    });
    quote! {
        #(#attributes)*
        #visibility trait #server: ::thalweg_runtime::rpc::Endpoint {
            #(#methods)*
        }
    }
}

fn client(declaration: &Declaration) -> TokenStream {
    let Declaration {
        visibility,
        client,
        call,
        name,
        server,
        ..
    } = declaration;
    let summary = format!(
        "Calls the `{}` gateway of an endpoint that implements [`{server}`], local or remote. Cloning is cheap.",
        name.value()
    );
    let methods = declaration
        .methods
        .iter()
        .enumerate()
        .map(|(index, method)| {
            let (attributes, name, variant) = (&method.attributes, &method.name, &method.variant);
            let (names, types) = names_and_types(method);
            let arguments = quote! { (#(#names,)*) };
            if let Some(answer) = &method.answer {
                quote! {
                    #(#attributes)*
                    ///
                    /// # Errors
                    /// Any [`RpcError`](::thalweg_runtime::rpc::RpcError).
                    ///
                    /// # Cancel safety
                    /// Nothing is sent before the first poll. Dropping the future cancels the call: the endpoint may have
                    /// begun with it.
                    #[track_caller]
                    #visibility fn #name(
                        &self,
                        #(#names: #types),*
                    ) -> impl ::core::future::Future<
                        Output = ::core::result::Result<#answer, ::thalweg_runtime::rpc::RpcError>,
                    > + ::core::marker::Send + 'static + use<> {
                        self.inner.ask(
                            &<Self as ::thalweg_runtime::rpc::Gateway>::METHODS[#index],
                            ::core::panic::Location::caller(),
                            #arguments,
                            #call::#variant,
                        )
                    }
                }
            } else {
                quote! {
                    #(#attributes)*
                    ///
                    /// Tells: handed over at once, in order with this client's calls, without an answer.
                    ///
                    /// # Errors
                    /// What is known at once: the connection has ended, the endpoint has terminated, a queue is full, or
                    /// the arguments are too large.
                    #visibility fn #name(
                        &self,
                        #(#names: #types),*
                    ) -> ::core::result::Result<(), ::thalweg_runtime::rpc::RpcError> {
                        self.inner.tell(
                            &<Self as ::thalweg_runtime::rpc::Gateway>::METHODS[#index],
                            #arguments,
                            #call::#variant,
                        )
                    }
                }
            }
        });
    quote! {
        #[doc = #summary]
        #[derive(Clone, Debug)]
        #visibility struct #client {
            inner: ::thalweg_runtime::rpc::__private::GatewayRef<#call>,
        }

        #[allow(dead_code, reason = "a declaration may have methods that this crate only serves")]
        impl #client {
            #(#methods)*

            /// The same connection with a deadline for every call, instead of the methods' own time-outs.
            #[must_use]
            #visibility fn with_deadline(&self, deadline: ::thalweg_runtime::rpc::Deadline) -> Self {
                Self { inner: self.inner.with_deadline(deadline) }
            }

            /// The endpoint's address, without a wildcard.
            #[must_use]
            #visibility fn address(&self) -> &::thalweg_runtime::rpc::RpcAddress {
                self.inner.address()
            }

            /// Why calls cannot succeed any more, or `None` while the connection and a local endpoint live.
            #[must_use]
            #visibility fn closed(&self) -> ::core::option::Option<::thalweg_runtime::rpc::RpcError> {
                self.inner.closed()
            }

            /// Waits until calls cannot succeed any more, and says why. Keeps neither the connection nor the endpoint
            /// alive.
            ///
            /// # Cancel safety
            /// Cancel-safe.
            #visibility fn wait_closed(
                &self,
            ) -> impl ::core::future::Future<Output = ::thalweg_runtime::rpc::RpcError>
            + ::core::marker::Send + 'static + use<> {
                self.inner.wait_closed()
            }
        }
    }
}

fn call(declaration: &Declaration) -> TokenStream {
    let Declaration {
        visibility,
        call,
        client,
        ..
    } = declaration;
    let variants = declaration.methods.iter().map(|method| {
        let variant = &method.variant;
        let (_, types) = names_and_types(method);
        match &method.answer {
            Some(answer) => quote! {
                #variant((#(#types,)*), ::thalweg_runtime::rpc::__private::Responder<#answer>)
            },
            None => quote! { #variant((#(#types,)*)) },
        }
    });
    let indexes = declaration
        .methods
        .iter()
        .enumerate()
        .map(|(index, method)| {
            let variant = &method.variant;
            quote! { Self::#variant(..) => #index }
        });
    let failures = declaration.methods.iter().map(|method| {
        let variant = &method.variant;
        if method.answer.is_some() {
            quote! { Self::#variant(_, responder) => responder.send(::core::result::Result::Err(error)) }
        } else {
            quote! { Self::#variant(..) => ::core::mem::drop(error) }
        }
    });
    let cancelled = declaration.methods.iter().map(|method| {
        let variant = &method.variant;
        if method.answer.is_some() {
            quote! { Self::#variant(_, responder) => responder.is_cancelled() }
        } else {
            quote! { Self::#variant(..) => false }
        }
    });
    let decoders = declaration.methods.iter().map(|method| {
        let (id, variant) = (method.id, &method.variant);
        if method.answer.is_some() {
            quote! {
                #id => ::thalweg_runtime::rpc::__private::decode_ask(body, reply, Self::#variant)
            }
        } else {
            quote! {
                #id => ::thalweg_runtime::rpc::__private::decode_tell(body, reply, Self::#variant)
            }
        }
    });
    quote_spanned! { declaration.span() =>
        #[doc(hidden)]
        #[derive(Debug)]
        #visibility enum #call {
            #(#variants,)*
        }

        impl ::thalweg_runtime::rpc::__private::GatewayCall for #call {
            fn method(&self) -> &'static ::thalweg_runtime::rpc::Method {
                let index: usize = match *self { #(#indexes,)* };
                &<#client as ::thalweg_runtime::rpc::Gateway>::METHODS[index]
            }

            fn is_cancelled(&self) -> bool {
                match self { #(#cancelled,)* }
            }

            fn fail(self, error: ::thalweg_runtime::rpc::RpcError) {
                match self { #(#failures,)* }
            }

            fn decode(
                method: u32,
                body: &[u8],
                reply: ::core::option::Option<::thalweg_runtime::rpc::__private::BoxReply>,
            ) -> ::core::result::Result<Self, ::thalweg_runtime::rpc::__private::Undecoded> {
                match method {
                    #(#decoders,)*
                    _ => ::core::result::Result::Err(
                        ::thalweg_runtime::rpc::__private::Undecoded::unknown(reply),
                    ),
                }
            }
        }
    }
}

fn bindings(declaration: &Declaration) -> TokenStream {
    let Declaration {
        server,
        client,
        call,
        name,
        ..
    } = declaration;
    let table = declaration.methods.iter().map(|method| {
        let (text, id, callers, fenced) = (
            method.name.to_string(),
            method.id,
            &method.callers,
            method.fenced,
        );
        let answers = method.answer.is_some();
        let timeout = match method.timeout {
            None => quote! { ::core::option::Option::None },
            Some(Timeout::Never) => quote! {
                ::core::option::Option::Some(::thalweg_runtime::rpc::Deadline::Never)
            },
            Some(Timeout::After(after)) => {
                let millis = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
                quote! {
                    ::core::option::Option::Some(::thalweg_runtime::rpc::Deadline::After(
                        ::core::time::Duration::from_millis(#millis),
                    ))
                }
            }
        };
        let max_per_second = match method.max_per_second.map(std::num::NonZeroU32::get) {
            None => quote! { ::core::option::Option::None },
            Some(most) => quote! { ::core::num::NonZeroU32::new(#most) },
        };
        quote! {
            ::thalweg_runtime::rpc::Method {
                gateway: #name,
                name: #text,
                id: #id,
                callers: &[#(#callers),*],
                timeout: #timeout,
                max_per_second: #max_per_second,
                fenced: #fenced,
                answers: #answers,
            }
        }
    });
    let arms = declaration.methods.iter().map(|method| {
        let (method_name, variant) = (&method.name, &method.variant);
        let names: Vec<_> = (0..method.arguments.len())
            .map(|index| format_ident!("argument_{index}"))
            .collect();
        if method.answer.is_some() {
            quote! {
                #call::#variant((#(#names,)*), responder) => {
                    let answer = <E as #server>::#method_name(state, cx, #(#names),*);
                    responder.settle(answer, cx);
                }
            }
        } else {
            quote! {
                #call::#variant((#(#names,)*)) => <E as #server>::#method_name(state, cx, #(#names),*)
            }
        }
    });
    quote! {
        impl ::thalweg_runtime::rpc::Gateway for #client {
            const NAME: &'static str = #name;
            const METHODS: &'static [::thalweg_runtime::rpc::Method] = &[#(#table),*];
            type Call = #call;

            fn from_ref(inner: ::thalweg_runtime::rpc::__private::GatewayRef<#call>) -> Self {
                Self { inner }
            }
        }

        impl<E: #server> ::thalweg_runtime::rpc::ServedBy<E> for #client {
            fn invoke(
                call: #call,
                state: &mut E,
                cx: &mut ::thalweg_runtime::rpc::Context<E>,
            ) {
                match call { #(#arms,)* }
            }
        }
    }
}

fn names_and_types(method: &Method) -> (Vec<&syn::Ident>, Vec<&syn::Type>) {
    method.arguments.iter().map(|(name, ty)| (name, ty)).unzip()
}
