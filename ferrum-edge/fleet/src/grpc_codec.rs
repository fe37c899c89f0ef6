//! The encoding of gRPC messages with small buffers: a control plane keeps them for each edge, also while it has nothing to send.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::ProstCodec;

/// Bytes that a connection begins with. A buffer stays as large as the largest message was.
const BUFFER_BYTES: usize = 1 << 10;
/// Messages that are there together are written together up to this size: the buffer stays as large as the largest of these was, too.
const WRITTEN_BYTES: usize = 4 << 10;

/// Protocol Buffers, as [`ProstCodec`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct SmallBuffers<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SmallBuffers<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for SmallBuffers<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = <ProstCodec<T, U> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(BUFFER_BYTES, WRITTEN_BYTES))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(BUFFER_BYTES, WRITTEN_BYTES))
    }
}
