//! What importers write, by types: each has the fields that the gateway knows, and keeps the order in which they are set.
//!
//! `settings!` declares types, `draft!` makes one: `draft!(Redirect { status_code: 301, location })`. A value of `None` leaves its field out.
//! A test of the program compares the fields of each type with its JSON Schema.

use std::ops::DerefMut;

use serde_json::{Map, Value};

/// A type of settings: where it is in the schema, and the fields that importers set.
pub type Declared = (&'static str, &'static [&'static str]);

/// A value of a field; `None` leaves the field out.
pub(crate) trait Setting {
    fn setting(self) -> Option<Value>;
}

/// One of these kinds of values, each with the types that it is written as.
macro_rules! kinds {
    ($($(#[$about:meta])* $kind:ident: $($type:ty),+;)*) => {$(
        $(#[$about])*
        pub(crate) trait $kind: Setting {}
        $(impl $kind for $type {})+
        impl<T: $kind> $kind for Option<T> {}
    )*};
}

kinds! {
    /// A text.
    Text: &str, &&str, String, &String, &&String;
    /// A whole number.
    Number: u16, i32, u32, u64, i64, usize;
    /// True or false.
    Flag: bool;
    /// A duration or a size, as a text with its unit or a number.
    Amount: &str, String, u16, i32, u32, u64, Value;
    /// What the original has, as it is.
    Any: &str, &&str, String, &String, u16, i32, u64, bool, Value, &Value, Map<String, Value>, Vec<Value>, Vec<String>;
}

macro_rules! written {
    ($($type:ty)+) => {$(
        impl Setting for $type {
            fn setting(self) -> Option<Value> {
                Some(Value::from(self))
            }
        }
    )+};
}

written! { &str String bool u16 i32 u32 u64 i64 usize Value Map<String, Value> }

impl Setting for &String {
    fn setting(self) -> Option<Value> {
        self.as_str().setting()
    }
}

impl Setting for &&String {
    fn setting(self) -> Option<Value> {
        self.as_str().setting()
    }
}

impl Setting for &&str {
    fn setting(self) -> Option<Value> {
        (*self).setting()
    }
}

impl Setting for &Value {
    fn setting(self) -> Option<Value> {
        Some(self.clone())
    }
}

impl<T: Setting> Setting for Option<T> {
    fn setting(self) -> Option<Value> {
        self.and_then(T::setting)
    }
}

impl<T: Setting> Setting for Vec<T> {
    fn setting(self) -> Option<Value> {
        Some(self.into_iter().filter_map(T::setting).collect())
    }
}

impl<T: Setting, const N: usize> Setting for [T; N] {
    fn setting(self) -> Option<Value> {
        Some(self.into_iter().filter_map(T::setting).collect())
    }
}

impl<'t, T> Setting for &'t [T]
where
    &'t T: Setting,
{
    fn setting(self) -> Option<Value> {
        Some(self.iter().filter_map(Setting::setting).collect())
    }
}

impl<'t, T> Setting for &'t Vec<T>
where
    &'t T: Setting,
{
    fn setting(self) -> Option<Value> {
        self.as_slice().setting()
    }
}

/// A list of texts.
pub(crate) trait Texts: Setting {}
impl<T: Text> Texts for Vec<T> {}
impl<T: Text, const N: usize> Texts for [T; N] {}
impl<'t, T> Texts for &'t [T] where &'t T: Text {}
impl<'t, T> Texts for &'t Vec<T> where &'t T: Text {}
impl<T: Texts> Texts for Option<T> {}

/// A list of numbers.
pub(crate) trait Numbers: Setting {}
impl<T: Number> Numbers for Vec<T> {}
impl<T: Number, const N: usize> Numbers for [T; N] {}
impl<T: Numbers> Numbers for Option<T> {}

/// Settings within settings.
pub(crate) trait One<T>: Setting {}
impl<T: Settings> One<T> for T {}
impl<T: Settings> One<T> for Option<T> {}

/// A list of settings.
pub(crate) trait List<T>: Setting {}
impl<T: Settings> List<T> for Vec<T> {}
impl<T: Settings> List<T> for Option<Vec<T>> {}
impl<T: Settings, const N: usize> List<T> for [T; N] {}

/// Settings within settings, or a list of them.
pub(crate) trait OneOrList<T>: Setting {}
impl<T: Settings> OneOrList<T> for T {}
impl<T: Settings> OneOrList<T> for Vec<T> {}
impl<T: Settings> OneOrList<T> for Option<Vec<T>> {}

/// A type of settings.
pub(crate) trait Settings:
    Default + Setting + Into<Value> + DerefMut<Target = Map<String, Value>>
{
    /// Where it is in the schema: the section of the document or the name of the plugin, and the keys that lead to it.
    const PLACE: &'static str;

    /// Settings with room for so many fields.
    fn with_capacity(fields: usize) -> Self;
}

/// Sets a field of an object.
pub(super) fn put(object: &mut Map<String, Value>, key: &str, value: impl Setting) {
    if let Some(value) = value.setting() {
        object.insert(key.to_owned(), value);
    }
}

/// Declares types of settings: `Name: "place" { field: Kind, … }`.
macro_rules! settings {
    ($($(#[$about:meta])* $name:ident: $place:literal { $($field:ident: $kind:path),* $(,)? })*) => {
        $(
            $(#[$about])*
            #[derive(Debug, Clone, Default, PartialEq)]
            pub(crate) struct $name(serde_json::Map<String, serde_json::Value>);

            impl $name {
                $(
                    pub(crate) fn $field(&mut self, value: impl $kind) {
                        $crate::draft::settings::put(&mut self.0, stringify!($field), value);
                    }
                )*
            }

            impl $crate::draft::settings::Settings for $name {
                const PLACE: &'static str = $place;

                fn with_capacity(fields: usize) -> Self {
                    Self(serde_json::Map::with_capacity(fields))
                }
            }

            impl $crate::draft::settings::Setting for $name {
                fn setting(self) -> Option<serde_json::Value> {
                    Some(self.into())
                }
            }

            impl $crate::draft::settings::Any for $name {}

            impl From<$name> for serde_json::Value {
                fn from(settings: $name) -> Self {
                    Self::Object(settings.0)
                }
            }

            impl From<$name> for serde_json::Map<String, serde_json::Value> {
                fn from(settings: $name) -> Self {
                    settings.0
                }
            }

            impl IntoIterator for $name {
                type Item = (String, serde_json::Value);
                type IntoIter = serde_json::map::IntoIter;

                fn into_iter(self) -> Self::IntoIter {
                    self.0.into_iter()
                }
            }

            impl std::ops::Deref for $name {
                type Target = serde_json::Map<String, serde_json::Value>;

                fn deref(&self) -> &Self::Target {
                    &self.0
                }
            }

            impl std::ops::DerefMut for $name {
                fn deref_mut(&mut self) -> &mut Self::Target {
                    &mut self.0
                }
            }
        )*

        /// The types that are declared here.
        pub(super) const DECLARED: &[$crate::draft::settings::Declared] =
            &[$(($place, &[$(stringify!($field)),*])),*];
    };
}

/// Makes settings: the type with its fields in this order.
macro_rules! draft {
    ($name:ident {}) => { $name::default() };
    ($name:ident { $($field:ident $(: $value:expr)?),+ $(,)? }) => {{
        let fields = [$(stringify!($field)),+].len();
        let mut made = <$name as $crate::draft::Settings>::with_capacity(fields);
        $(draft!(@set made $field $($value)?);)+
        made
    }};
    (@set $made:ident $field:ident $value:expr) => { $made.$field($value) };
    (@set $made:ident $field:ident) => { $made.$field($field) };
}

pub(crate) use {draft, settings};
