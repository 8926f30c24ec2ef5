//! Images: where they are uploaded to, and where they are read from.

use std::collections::HashMap;

use kernel::time::UnixMillis;

use crate::message::ImageKey;

/// Addresses from which images can be read, for an hour.
#[derive(Debug, Default)]
pub struct Links(HashMap<ImageKey, String>);

impl Links {
    /// Empty when it could not be made; a later reading has it.
    pub fn get(&self, key: &ImageKey) -> String {
        self.0.get(key).cloned().unwrap_or_default()
    }
}

/// The bucket of images.
#[derive(Debug, Clone)]
pub struct Uploads {}

impl Uploads {
    /// Links to images. Placeholder until the signing part is merged.
    pub async fn links(&self, _keys: impl IntoIterator<Item = &ImageKey>, _now: UnixMillis) -> Links {
        Links::default()
    }
}
