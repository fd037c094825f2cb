//! Random bodies of requests, legal by their shape.

use tidelog_broker::wire::shape::{Body, Field, Shape, Struct};

/// A small generator of numbers: the same every run.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Writes a random body of a shape.
struct Writer<'a> {
    dice: &'a mut Dice,
    version: i16,
    flexible: bool,
    out: Vec<u8>,
}

impl Writer<'_> {
    fn structure(&mut self, structure: &Struct) {
        self.fields(structure.fields);
        if self.flexible {
            self.tags(structure);
        }
    }

    fn fields(&mut self, fields: &[Field]) {
        for field in fields {
            if (field.versions.0..=field.versions.1).contains(&self.version) {
                self.field(&field.shape);
            }
        }
    }

    fn tags(&mut self, structure: &Struct) {
        let known: Vec<_> =
            structure.tagged.iter().filter(|tagged| self.version >= tagged.since).collect();
        let unknown = self.dice.roll(3) as u32;
        self.varint(known.len() as u32 + unknown);
        for tagged in known {
            let mut inner = Writer {
                dice: &mut *self.dice,
                version: self.version,
                flexible: true,
                out: Vec::new(),
            };
            inner.fields(tagged.fields);
            if tagged.is_struct {
                inner.varint(0);
            }
            let content = inner.out;
            self.varint(tagged.tag);
            self.varint(content.len() as u32);
            self.out.extend(content);
        }
        for tag in 0..unknown {
            self.varint(100 + tag);
            let length = self.dice.roll(200) as u32;
            self.varint(length);
            self.out.extend(vec![0xee; length as usize]);
        }
    }

    fn field(&mut self, shape: &Shape) {
        match *shape {
            Shape::Fixed(length) => {
                for _ in 0..length {
                    let byte = self.dice.roll(2) as u8;
                    self.out.push(byte);
                }
            }
            Shape::Text(nullable) => self.blob(2, nullable, 140),
            Shape::Blob(nullable) => self.blob(4, nullable, 40_000),
            Shape::Structs(nullable, structure) => {
                for _ in 0..self.count(nullable) {
                    self.structure(structure);
                }
            }
            Shape::Values(nullable, value) => {
                for _ in 0..self.count(nullable) {
                    self.field(value);
                }
            }
        }
    }

    fn null(&mut self, width: usize, nullable: Option<i16>) -> bool {
        let null = nullable.is_some_and(|since| self.version >= since) && self.dice.roll(4) == 0;
        if null {
            self.length(width, None);
        }
        null
    }

    fn count(&mut self, nullable: Option<i16>) -> u64 {
        if self.null(4, nullable) {
            return 0;
        }
        let count = self.dice.roll(4);
        self.length(4, Some(count as usize));
        count
    }

    fn blob(&mut self, width: usize, nullable: Option<i16>, most: u64) {
        if self.null(width, nullable) {
            return;
        }
        let length = self.dice.roll(most) as usize;
        self.length(width, Some(length));
        self.out.extend(vec![b'x'; length]);
    }

    fn length(&mut self, width: usize, length: Option<usize>) {
        if self.flexible {
            self.varint(length.map_or(0, |length| length as u32 + 1));
        } else if width == 2 {
            self.out.extend(length.map_or(-1, |length| length as i16).to_be_bytes());
        } else {
            self.out.extend(length.map_or(-1, |length| length as i32).to_be_bytes());
        }
    }

    fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }
}

/// A random body of this version.
pub fn written(body: &Body, version: i16, dice: &mut Dice) -> Vec<u8> {
    let flexible = version >= body.flexible_since;
    let mut writer = Writer { dice, version, flexible, out: Vec::new() };
    writer.structure(&body.body);
    writer.out
}
