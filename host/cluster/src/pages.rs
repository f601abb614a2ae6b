//! A list in pages whose size in memory is bounded, however large the objects are.

use std::time::Duration;

use kube::Client;

use crate::answer;
use crate::error::ReadError;
use crate::watches::Query;
use crate::wire::Page;

/// How large pages are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Objects in a page, to begin with.
    pub(crate) objects: u32,
    /// A page that is larger is asked for again with half as many objects.
    pub(crate) bytes_max: usize,
    /// For one page.
    pub(crate) timeout: Duration,
}

/// The pages of one consistent list. 500 ConfigMaps take a few MiB, or half a gigabyte; nobody knows before.
pub(crate) struct Pages<'a> {
    query: &'a Query,
    sizes: Sizes,
    next: Option<String>,
    done: bool,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(query: &'a Query, sizes: Sizes) -> Self {
        Self { query, sizes, next: None, done: false }
    }

    /// The next page; none after the last. After an error the list must be begun anew.
    pub(crate) async fn next(&mut self, client: &Client) -> Result<Option<Page>, ReadError> {
        if self.done {
            return Ok(None);
        }
        loop {
            let Sizes { objects, bytes_max, timeout } = self.sizes;
            let request = self.query.list_request(self.next.as_deref(), objects)?;
            let text = match answer::text(client, request, timeout, bytes_max).await {
                Err(ReadError::TooLarge { .. }) if objects > 1 => {
                    // The token says where the list goes on, not how many objects to take.
                    self.sizes.objects = objects / 2;
                    continue;
                }
                answered => answered?,
            };
            let page = Page::parse(&text)?;
            self.next.clone_from(&page.next);
            self.done = page.next.is_none();
            return Ok(Some(page));
        }
    }
}
