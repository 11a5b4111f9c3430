//! The images of the kernels, and which one a GPU takes.

use crate::types::{Error, Result};

/// All kernels for some architectures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Image {
    /// The file's name.
    pub(super) name: &'static str,
    /// The compute capability that it was made for.
    capability: (u32, u32),
    packed: &'static [u8],
}

macro_rules! image {
    ($name:literal, $capability:expr) => {
        Image {
            name: $name,
            capability: $capability,
            packed: include_bytes!(concat!("images/", $name, ".z")),
        }
    };
}

/// Machine code, which runs on GPUs of the same major number and the same or a higher minor one.
pub(super) const CUBINS: [Image; 4] = [
    image!("sm_80.cubin", (8, 0)),
    image!("sm_90.cubin", (9, 0)),
    image!("sm_100.cubin", (10, 0)),
    image!("sm_120.cubin", (12, 0)),
];

/// What drivers translate for GPUs that there is no machine code for.
pub(super) const PTX: Image = image!("compute_80.ptx", (8, 0));

impl Image {
    /// The image for GPUs of this compute capability.
    ///
    /// # Errors
    /// [`Error::Usage`] when they are too old for all.
    pub(crate) fn for_capability(major: u32, minor: u32) -> Result<Image> {
        let runs = |image: &&Image| image.capability.0 == major && image.capability.1 <= minor;
        if (major, minor) < PTX.capability {
            return Err(Error::usage(format!(
                "a GPU of compute capability {major}.{minor}: there are kernels for 8.0 (Ampere) and later"
            )));
        }
        Ok(*CUBINS.iter().find(runs).unwrap_or(&PTX))
    }

    /// The image as the driver loads it, a NUL at its end, which ends PTX.
    ///
    /// # Errors
    /// [`Error::Internal`] when the library was built of a damaged one.
    pub(crate) fn unpacked(&self) -> Result<Vec<u8>> {
        let mut image = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(self.packed, MOST_BYTES)
            .map_err(|error| Error::internal(format!("the kernels' image {}: {error}", self.name)))?;
        image.push(0);
        Ok(image)
    }
}

/// More than any image has.
const MOST_BYTES: usize = 16 << 20;
