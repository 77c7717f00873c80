//! The gateway declaration macro of `thalweg-runtime`; use it as `thalweg_runtime::rpc::gateway`.

mod attribute;
mod declaration;
mod expand;

use proc_macro::TokenStream;

/// Turns a trait into a gateway: the trait that an endpoint implements, and a client.
///
/// See `thalweg_runtime::rpc` for what a declaration looks like and what comes out of it.
#[proc_macro_attribute]
pub fn gateway(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let result = syn::parse(attribute).and_then(|attribute| {
        let item = syn::parse(item)?;
        declaration::Declaration::new(&attribute, &item)
    });
    match result {
        Ok(declaration) => expand::expand(&declaration).into(),
        Err(error) => error.into_compile_error().into(),
    }
}
